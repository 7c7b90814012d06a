"""Contract suites: what every store, scheduler and launcher must do, ours and others'.

Subclass a suite in a test module and give it the fixture that its docstring asks for.
"""
