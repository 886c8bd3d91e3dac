"""What the world is: instance types, versions, models, environment policy and prices."""
