"""Silver: change events merged by key and position into current state and history."""
