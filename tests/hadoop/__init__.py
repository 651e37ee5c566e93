"""Tests on a real Hadoop cluster; cluster.py starts and stops it."""
