package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/jobrunner/runner/abi"
)

// redactDepth is how deep a payload is shown. What lies deeper is hidden whole:
// it could carry a secret under a name that nobody looked at.
const redactDepth = 8

const hidden = `"[hidden]"`

// secretParts anywhere in a key hide its value; secretWords do as a whole word
// of it, since shorter ones lie inside harmless names (className holds "ssn").
var (
	secretParts = []string{
		"apikey", "accesskey", "privatekey", "authorization", "bearer", "cookie", "credential",
		"cardnumber", "passphrase", "passwd", "password", "secret", "session", "signature", "token",
	}
	secretWords = map[string]bool{
		"auth": true, "cvc": true, "cvv": true, "iban": true, "jwt": true, "otp": true, "pass": true, "pin": true, "pwd": true, "ssn": true,
	}
)

func secretKey(key string) bool {
	words := strings.FieldsFunc(breakCamel(key), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	joined := strings.ToLower(strings.Join(words, ""))
	for _, part := range secretParts {
		if strings.Contains(joined, part) {
			return true
		}
	}
	return slices.ContainsFunc(words, func(w string) bool { return secretWords[strings.ToLower(w)] })
}

// breakCamel puts a space before each capital that follows a lower-case letter.
func breakCamel(s string) string {
	var b strings.Builder
	lower := false
	for _, r := range s {
		if lower && unicode.IsUpper(r) {
			b.WriteByte(' ')
		}
		lower = unicode.IsLower(r)
		b.WriteRune(r)
	}
	return b.String()
}

// redact is the JSON payload as an operator may see it: compact, in the order
// it was written, values of secret-looking keys hidden. What is not JSON is
// not shown at all.
func redact(payload []byte) json.RawMessage {
	if len(payload) == 0 {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(payload))
	dec.UseNumber()
	var b bytes.Buffer
	if err := redactValue(dec, &b, 0, false); err != nil {
		return notJSON(payload)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return notJSON(payload)
	}
	return b.Bytes()
}

func notJSON(payload []byte) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`"[%d bytes that are not JSON]"`, len(payload)))
}

// redactValue copies the next value of dec; hide copies nothing of it but its
// place.
func redactValue(dec *json.Decoder, b *bytes.Buffer, depth int, hide bool) error {
	if depth > abi.MaxJSONDepth {
		return errors.New("nested too deeply")
	}
	tok, err := dec.Token()
	if err != nil {
		return err
	}
	delim, composite := tok.(json.Delim)
	if hide || composite && depth >= redactDepth {
		b.WriteString(hidden)
		b = &bytes.Buffer{} // still to be read to its end
		hide = true
	}
	switch {
	case !composite:
		text, err := json.Marshal(tok)
		if err != nil {
			return err
		}
		b.Write(text)
	case delim == '{':
		b.WriteByte('{')
		for n := 0; dec.More(); n++ {
			key, err := dec.Token()
			if err != nil {
				return err
			}
			name, _ := key.(string)
			text, _ := json.Marshal(name)
			if n > 0 {
				b.WriteByte(',')
			}
			b.Write(text)
			b.WriteByte(':')
			if err := redactValue(dec, b, depth+1, hide || secretKey(name)); err != nil {
				return err
			}
		}
		if _, err := dec.Token(); err != nil {
			return err
		}
		b.WriteByte('}')
	default:
		b.WriteByte('[')
		for n := 0; dec.More(); n++ {
			if n > 0 {
				b.WriteByte(',')
			}
			if err := redactValue(dec, b, depth+1, hide); err != nil {
				return err
			}
		}
		if _, err := dec.Token(); err != nil {
			return err
		}
		b.WriteByte(']')
	}
	return nil
}
