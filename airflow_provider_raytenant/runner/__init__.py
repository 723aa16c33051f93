"""The job's side of raytenant: wraps a job's entrypoint on the Ray cluster.

Standard library only, Python 3.10 or newer. The folder travels to the cluster as the package
`raytenant_runner`, so modules in here import each other relatively. Start it with

    exec python -m raytenant_runner [--private-cwd | --copy-cwd] [--ticket SUBMISSION_ID]
                                    [--job-timeout SECONDS] [--grace SECONDS] [--result-max-bytes N]
                                    (--shell 'STRING' | -- PROGRAM [ARGUMENT ...])

Airflow's side imports `end_record` alone, to read what a runner wrote at the end of a job's log.
"""
