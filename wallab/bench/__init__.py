"""What makes samples: the bed, the cluster, pgbench, workloads, the run."""
