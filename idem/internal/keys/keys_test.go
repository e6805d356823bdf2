package keys

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGuessable(t *testing.T) {
	for key, want := range map[string]bool{
		// One repeated character.
		"": true, "a": true, "aaaaaaaaaaaaaaaa": true, "----------------": true, "0000000000000000": true,
		"00000000-0000-0000-0000-000000000000": true, "x-x-x-x-x-x-x-x-x": true, "ääääääää": true,
		// Counters and short numbers.
		"req-1": true, "req-2": true, "req1": true, "Req-0017": true, "REQ_17": true, "17": true, "4711": true,
		"payment-0000000001": true, "0000000000004711": true, "idempotency-key-3": true, "refund:9999999": true,
		"my.service/9": true,
		// Numbers of something.
		"10000000": false, "order-10000001": false, "4000000000000001": false, "INV-20260302": false,
		"order-17-2026-03-02": false, "2026-03-02T11:40:15Z": false,
		// Random keys: a UUID of each kind, a ULID, a KSUID, a nanoid, an object id of MongoDB, a request id of AWS.
		"8e03978e-40d5-43e8-bc93-6894a57f9324": false, "0195f1b2-7c00-7abc-8def-000000000001": false,
		"01JNXW7Q8ZK3T5V6Y9B2C4D0E1": false, "0ujtsYcgvSTl8PAuAdqWYSMnLOv": false, "V1StGXR8_Z5jdHi6B-myT": false,
		"507f1f77bcf86cd799439011": false, "deadbeefdeadbeefdeadbeefdeadbe01": false,
		// The id of a message of SQS, and digests.
		"059f36b4-87a3-44ab-83d2-661975830a7d":                             false,
		"d41d8cd98f00b204e9800998ecf8427e":                                 false,
		"47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU":                      false,
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855": false,
		// What is guessable in another way is not found.
		"test": false, "refund-for-alice": false, "abababababababab": false,
	} {
		require.Equal(t, want, Guessable(key), key)
	}
}

// No random key is taken for one that was made up.
func TestNoFalseAlarm(t *testing.T) {
	for n := range 200_000 {
		sum := sha256.Sum256(fmt.Append(nil, n))
		for _, key := range []string{
			fmt.Sprintf("%x-%x-4%x-8%x-%x", sum[:4], sum[4:6], sum[6:7], sum[7:8], sum[8:14]),
			hex.EncodeToString(sum[:]), hex.EncodeToString(sum[:8]),
			base64.RawURLEncoding.EncodeToString(sum[:]), base64.RawURLEncoding.EncodeToString(sum[:16]), rand.Text(),
			strings.ToLower(rand.Text()),
		} {
			require.False(t, Guessable(key), key)
		}
	}
}
