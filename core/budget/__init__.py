"""Money: what a call may cost, who pays, and the one ledger of the fleet (architecture.md §5)."""
