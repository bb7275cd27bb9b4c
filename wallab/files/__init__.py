"""Files that the lab keeps: JSON, lines of JSON, strictly read TOML, folders of results."""
