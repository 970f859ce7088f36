"""One layer between engines and the world: what everything that runs an application is made of."""
