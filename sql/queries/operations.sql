-- What the exporter and `muniment doctor` ask.

-- name: set_inflight_limits(interactive, bulk)!
-- For the view `backlog`, within this transaction.
select set_config('muniment.inflight_interactive', :interactive, true), set_config('muniment.inflight_bulk', :bulk, true);

-- name: process_counts()
select role, alive, clock_skew_ms from process_counts;
