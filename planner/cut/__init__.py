"""Cuts: how one replica is spread over several devices. Pure arithmetic over blocks; knows no search."""
