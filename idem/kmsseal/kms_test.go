package kmsseal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/stretchr/testify/require"
)

// service is a KMS of this process, with the requests, answers and errors of the two calls as
// in the API reference (https://docs.aws.amazon.com/kms/latest/APIReference/). Its keys exist
// once they are named.
type service struct {
	mu    sync.Mutex
	calls []string
	// fault, if not nil, answers instead if it returns a status other than zero.
	fault func(call string) (status int, code string)
}

type request struct {
	KeyID             string `json:"KeyId"`
	KeySpec           string
	CiphertextBlob    []byte
	EncryptionContext map[string]string
}

// made returns the calls since the last time.
func (s *service) made() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

func (s *service) breaks(fault func(call string) (int, string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// wrapping is the KMS key's cipher, under a key that its name gives.
func wrapping(name string) cipher.AEAD {
	key := sha256.Sum256([]byte("secret of " + name))
	block, _ := aes.NewCipher(key[:])
	aead, _ := cipher.NewGCMWithRandomNonce(block)
	return aead
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, call, _ := strings.Cut(r.Header.Get("X-Amz-Target"), "TrentService.")
	s.mu.Lock()
	s.calls = append(s.calls, call)
	fault := s.fault
	s.mu.Unlock()
	answer := func(status int, body any) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
	refuse := func(status int, code string) { answer(status, map[string]string{"__type": code, "message": "as told"}) }
	if fault != nil {
		if status, code := fault(call); status != 0 {
			refuse(status, code)
			return
		}
	}
	var in request
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		refuse(400, "SerializationException")
		return
	}
	// Maps are encoded in the order of their names.
	bound, _ := json.Marshal(in.EncryptionContext)
	owner := sha256.Sum256([]byte(in.KeyID))
	switch call {
	case "GenerateDataKey":
		if in.KeySpec != "AES_256" {
			refuse(400, "ValidationException")
			return
		}
		plain := make([]byte, 32)
		_, _ = rand.Read(plain)
		blob := wrapping(in.KeyID).Seal(bytes.Clone(owner[:]), nil, append(plain, make([]byte, 184-32-28-32)...), bound)
		answer(200, map[string]any{"CiphertextBlob": blob, "Plaintext": plain, "KeyId": in.KeyID})
	case "Decrypt":
		if len(in.CiphertextBlob) < 60 {
			refuse(400, "InvalidCiphertextException")
			return
		}
		if !bytes.Equal(in.CiphertextBlob[:32], owner[:]) {
			refuse(400, "IncorrectKeyException")
			return
		}
		plain, err := wrapping(in.KeyID).Open(nil, nil, in.CiphertextBlob[32:], bound)
		if err != nil {
			refuse(400, "InvalidCiphertextException")
			return
		}
		answer(200, map[string]any{"Plaintext": plain[:32], "KeyId": in.KeyID, "EncryptionAlgorithm": "SYMMETRIC_DEFAULT"})
	default:
		refuse(400, "UnknownOperationException")
	}
}

// start starts a service and gives a client of it, which tries once.
func start(t *testing.T) (*service, *kms.Client) {
	t.Helper()
	s := &service{}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, kms.New(kms.Options{
		BaseEndpoint: &server.URL, Region: "us-east-1", Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider("idemlocal", "idemlocal", ""),
	})
}

func open(t *testing.T, client Client, o Options) *Sealer {
	t.Helper()
	if o.Key == "" {
		o.Key = "alias/results"
	}
	s, err := New(client, o)
	require.NoError(t, err)
	return s
}
