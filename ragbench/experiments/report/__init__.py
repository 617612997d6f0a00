"""Reports computed from records: tables in every format, and the page."""
