"""Airflow's metadata database: the only place of the provider that touches it.

Only the ``airflow raytenant`` commands come here; task code has no database in Airflow 3.
"""
