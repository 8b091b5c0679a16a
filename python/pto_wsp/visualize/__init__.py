"""Pictures of tasks: graphs, timelines and reports, as SVG, HTML and PDF."""
