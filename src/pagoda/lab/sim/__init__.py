"""The simulation: the real store on a stepped executor, fake time and breakable media."""
