"""What moto's services lack: operations, and AWS's answers to wrong requests."""
