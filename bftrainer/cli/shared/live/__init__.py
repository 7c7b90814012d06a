"""Pictures of a terminal that go on changing: nodes over time, trainers with bars, the last decisions."""
