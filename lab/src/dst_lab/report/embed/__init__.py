"""What is put into the page whole: figures as SVG, and the data that its program reads."""
