"""What people look at: pages, pictures, terminals, and the documentation's reader."""
