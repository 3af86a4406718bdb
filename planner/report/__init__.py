"""What people see: terminal tables, plots, HTML, Chrome traces, JSON and CSV."""
