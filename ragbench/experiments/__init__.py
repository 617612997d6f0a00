"""What a run is: its config, its records, how it is run, summarised and compared."""
