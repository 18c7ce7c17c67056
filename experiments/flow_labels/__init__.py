"""IPv6 flow labels that Linux' TCP draws again: PRR after timeouts, PLB after marks."""
