"""What `muniment doctor` measures in Postgres; what it measures in Redis is in `workers/checks.py`."""
