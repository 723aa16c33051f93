"""What ``airflow raytenant doctor`` looks at: a small judgement a module, and the asking beside it."""
