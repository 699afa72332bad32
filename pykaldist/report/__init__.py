"""Reports: tables of systems, plans and simulations, as text, CSV and pictures."""
