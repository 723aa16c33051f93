"""What the example jobs share: their tenant's storage, bounded Ray tasks, the result for Airflow.

Shipped with a job by `py_modules=["jobs/jobkit"]`. Needs boto3 and Ray, which the cluster has.
"""
