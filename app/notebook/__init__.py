"""Access from Python: the API's lists as pandas frames, the pages' charts as plotly figures."""
