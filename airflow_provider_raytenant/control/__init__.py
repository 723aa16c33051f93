"""What has to be done again and again beside the scheduler: pools, orphans, old records."""
