"""From the graphs and texts of other frameworks to ours: each folder reads one of them."""
