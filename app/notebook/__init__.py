"""Reading from code: what the API lists as pandas frames, what the pages draw as plotly figures."""
