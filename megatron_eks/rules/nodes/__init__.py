"""Rules over what makes nodes: eksctl, Karpenter and the autoscaler."""
