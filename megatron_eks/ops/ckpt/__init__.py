"""`meks ckpt`: checkpoints on the shared file system, in S3 and on this machine."""
