package capability

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
)

// maxRedirects bounds how many redirects are followed.
const maxRedirects = 5

// redirect is http.Client's CheckRedirect: nil to follow next, and
// ErrUseLastResponse to answer the redirect as it came.
//
// What a guest sends is for the origin that it named. Elsewhere, by another
// scheme, host or port, go no header that could carry a secret, no body and no
// word of the URL before; also not on the way back, which whoever redirected
// has chosen.
func (s *Set) redirect(next *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects || s.permit(next.URL) != nil {
		return http.ErrUseLastResponse
	}
	left := !sameOrigin(next.URL, via[0].URL)
	for _, r := range via[1:] {
		left = left || !sameOrigin(r.URL, via[0].URL)
	}
	if !left {
		return nil
	}
	if next.ContentLength != 0 {
		return http.ErrUseLastResponse
	}
	maps.DeleteFunc(next.Header, func(name string, _ []string) bool { return !harmless[name] })
	return nil
}

// harmless are the headers that may follow to another origin.
var harmless = map[string]bool{"Accept": true, "Accept-Encoding": true, "Accept-Language": true, "User-Agent": true}

func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}
