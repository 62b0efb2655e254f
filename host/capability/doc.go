// Package capability is what a guest may touch outside its sandbox: HTTP,
// secrets and environment variables, each denied until granted by name.
//
// It owns the meaning of a grant and every check on the way out. It knows no
// guest, no memory and no step: host/call moves the values and keeps the rule
// that a request is made inside a step only. Time and randomness are no grants,
// because every guest gets them, made up outside steps.
//
// # What an HTTP pattern allows
//
// A pattern is scheme://host[:port]/path, as "https://api.example.com/v1/*".
//
//   - Scheme, host and port are equal or the request is denied; the default
//     port counts as written. A host that begins with "*." stands for every
//     name below it, not for the name itself.
//   - A path that ends in "*" stands for every path that begins so; any other
//     only for itself. The path is compared as it is sent, with its escapes. A
//     query is always allowed.
//   - A request with user information, or with a path that any server could
//     read as going up (".", "..", also escaped, also between backslashes), is
//     denied whatever the patterns say.
//   - A redirect is followed, five times at most, where the patterns allow its
//     target too, and otherwise answered as it came. To another origin (scheme,
//     host and port) go none of the guest's headers but the harmless ones, no
//     Referer and no body.
//
// # Where a request may connect to
//
// A name is resolved and the address checked when the connection is made, so
// that no answer of a name server reaches the runner's own network: loopback,
// private, link-local, shared, multicast and reserved addresses are refused,
// also in their IPv6 disguises. Only a pattern that names such an address
// literally, or "localhost", allows it. Proxies of the environment are not
// used: they would make the connection instead.
//
// Guests share idle connections, by scheme, host and port: a server that keeps
// state for a connection keeps it for all modules that may ask it. Nothing else
// is shared; there are no cookies but those that a guest sends itself.
//
// # What a server can do
//
// A response is bounded in bytes after decompression, its headers in bytes,
// and all of a request in time, from the look-up of the name to the last byte.
// When the attempt ends, so do the look-up, the connecting and the request.
package capability
