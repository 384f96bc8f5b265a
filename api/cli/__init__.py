"""The `muniment` command. Modules import what they need inside their commands, so that `--help` answers at once."""
