"""Running a config: from resolved parts to records and their summary."""
