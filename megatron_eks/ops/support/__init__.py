"""`meks support-bundle`: what somebody else needs to help, without what is nobody's business."""
