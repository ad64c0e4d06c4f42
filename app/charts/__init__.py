"""Results → Plotly figures. The only importer of plotly."""
