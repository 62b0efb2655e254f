package capability

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// privateAddressError: a name led to an address inside the runner's network.
type privateAddressError struct {
	host string
	addr netip.Addr
}

func (e *privateAddressError) Error() string {
	return fmt.Sprintf("%s resolves to %s, which is not a public address", e.host, e.addr)
}

// dialer connects to public addresses, and to others only where the host is
// that address or localhost. That a pattern allows the host was checked before.
type dialer struct {
	resolver *net.Resolver // nil is the system's
	tls      *tls.Config   // of every connection, but for the server's name
	timeout  time.Duration // of connecting, and of the TLS handshake after it
}

const (
	connectTimeout = 10 * time.Second
	keepAlive      = 30 * time.Second
)

// requestKey is the context key of the context that ends with a request.
type requestKey struct{}

// forRequest makes ctx say which request a connection is made for.
func forRequest(ctx context.Context) context.Context {
	return context.WithValue(ctx, requestKey{}, ctx)
}

// withRequest is ctx, also ended by the request that the connection is made
// for. http.Transport would go on connecting for some later request: a guest
// that gives up after a millisecond, again and again, would fill the process
// with sockets.
func withRequest(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := func() bool { return true }
	if request, ok := ctx.Value(requestKey{}).(context.Context); ok {
		stop = context.AfterFunc(request, func() { cancel(context.Cause(request)) })
	}
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// DialContext is for http.Transport: addr is host:port as in the URL.
func (d dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := withRequest(ctx)
	defer cancel()
	nd := net.Dialer{
		Timeout:   d.timeout,
		KeepAlive: keepAlive,
		Resolver:  d.resolver,
		// The address is the resolved one, right before the connection is made.
		Control: func(_, address string, _ syscall.RawConn) error {
			at, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("connect to %s: %w", host, err)
			}
			return permitted(host, at.Addr())
		},
	}
	return nd.DialContext(ctx, network, addr)
}

// DialTLSContext is DialContext with a TLS handshake, which ends with the
// request too.
func (d dialer) DialTLSContext(ctx context.Context, network, addr string) (net.Conn, error) {
	raw, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := withRequest(ctx)
	defer cancel()
	ctx, cancelTimeout := context.WithTimeout(ctx, d.timeout)
	defer cancelTimeout()
	c := d.tls.Clone()
	c.ServerName, _, _ = net.SplitHostPort(addr) // DialContext could split it
	conn := tls.Client(raw, c)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close() // its handshake has failed
		return nil, err
	}
	return conn, nil
}

// permitted is why a request to host may not connect to ip.
func permitted(host string, ip netip.Addr) error {
	ip = ip.Unmap().WithZone("")
	if literal, err := netip.ParseAddr(host); err == nil {
		// A pattern names this very address.
		if literal.Unmap().WithZone("") == ip {
			return nil
		}
	} else if strings.EqualFold(host, "localhost") && ip.IsLoopback() {
		return nil
	}
	if public(ip) {
		return nil
	}
	return &privateAddressError{host, ip}
}

// public reports whether ip is an address of the public Internet.
func public(ip netip.Addr) bool {
	// Of IPv6, one block is given out; addresses that carry an IPv4 address are
	// judged by it.
	if b := ip.As16(); ip.Is6() {
		switch {
		case nat64.Contains(ip):
			return public(netip.AddrFrom4([4]byte(b[12:16])))
		case sixToFour.Contains(ip):
			return public(netip.AddrFrom4([4]byte(b[2:6])))
		case !given.Contains(ip):
			return false
		}
	}
	if !ip.IsGlobalUnicast() || ip.IsPrivate() || ip.IsLoopback() || ip.IsLinkLocalUnicast() {
		return false
	}
	for _, p := range notPublic {
		if p.Contains(ip) {
			return false
		}
	}
	return true
}

var (
	given     = netip.MustParsePrefix("2000::/3")
	nat64     = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour = netip.MustParsePrefix("2002::/16")

	// notPublic are the blocks of the IANA special-purpose registries that
	// neither the methods of netip.Addr nor given leave out, and what leads inside
	// from every machine of a cloud.
	notPublic = []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"),        // this network
		netip.MustParsePrefix("100.64.0.0/10"),    // shared by carriers, and by clouds for metadata
		netip.MustParsePrefix("168.63.129.16/32"), // Azure's host, which hands out a machine's certificates
		netip.MustParsePrefix("192.0.0.0/24"),     // protocol assignments
		netip.MustParsePrefix("192.0.2.0/24"),     // documentation
		netip.MustParsePrefix("192.88.99.0/24"),   // relays of 6to4
		netip.MustParsePrefix("198.18.0.0/15"),    // benchmarks
		netip.MustParsePrefix("198.51.100.0/24"),  // documentation
		netip.MustParsePrefix("203.0.113.0/24"),   // documentation
		netip.MustParsePrefix("240.0.0.0/4"),      // reserved
		netip.MustParsePrefix("2001::/23"),        // protocol assignments, Teredo
		netip.MustParsePrefix("2001:db8::/32"),    // documentation
		netip.MustParsePrefix("3fff::/20"),        // documentation
	}
)
