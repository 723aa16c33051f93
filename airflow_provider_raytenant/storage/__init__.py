"""The only place that speaks S3 and STS: scoped credentials, and the tickets by which jobs get them."""
