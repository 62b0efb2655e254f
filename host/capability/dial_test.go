package capability

import (
	"net/netip"
	"testing"
)

func TestWhereARequestMayConnectTo(t *testing.T) {
	for _, c := range []struct {
		host, ip string
		want     bool
	}{
		{"api.example.com", "93.184.216.34", true},
		{"api.example.com", "2606:2800:220:1::1", true},
		{"api.example.com", "127.0.0.1", false},
		{"api.example.com", "127.9.9.9", false},
		{"api.example.com", "::1", false},
		{"api.example.com", "0.0.0.0", false},
		{"api.example.com", "::", false},
		{"api.example.com", "10.1.2.3", false},
		{"api.example.com", "172.16.0.1", false},
		{"api.example.com", "192.168.1.1", false},
		{"api.example.com", "169.254.169.254", false},
		{"api.example.com", "100.100.100.200", false},
		{"api.example.com", "168.63.129.16", false},
		{"168.63.129.16", "168.63.129.16", true},
		{"api.example.com", "fe80::1", false},
		{"api.example.com", "fd00:ec2::254", false},
		{"api.example.com", "224.0.0.1", false},
		{"api.example.com", "255.255.255.255", false},
		{"api.example.com", "240.0.0.1", false},
		{"api.example.com", "198.18.0.1", false},
		{"api.example.com", "::ffff:127.0.0.1", false},
		{"api.example.com", "::ffff:93.184.216.34", true},
		{"api.example.com", "::127.0.0.1", false},
		{"api.example.com", "64:ff9b::7f00:1", false},
		{"api.example.com", "64:ff9b::5db8:d822", true},
		{"api.example.com", "2002:7f00:1::", false},
		{"api.example.com", "2002:a9fe:a9fe::1", false},
		{"api.example.com", "2001::1", false},
		{"localhost", "127.0.0.1", true},
		{"localhost", "::1", true},
		{"localhost", "10.0.0.1", false},
		{"10.0.0.1", "10.0.0.1", true},
		{"10.0.0.1", "10.0.0.2", false},
		{"127.0.0.1", "127.0.0.1", true},
		{"::1", "::1", true},
		{"::1", "127.0.0.1", false},
	} {
		if got := permitted(c.host, netip.MustParseAddr(c.ip)) == nil; got != c.want {
			t.Errorf("%s may connect to %s: %v, want %v", c.host, c.ip, got, c.want)
		}
	}
}
