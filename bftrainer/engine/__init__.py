"""(state, event) -> (state, actions): every decision of bftrainer, and no side effect."""
