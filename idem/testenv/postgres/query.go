package postgres

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// query executes statements as a client would, in a connection of their own, and returns the first
// column of all rows. It is what a server is asked before there is a client.
func (s *Server) query(database, sql string) (rows []string, err error) {
	c, err := net.DialTimeout("tcp", s.Address(), queryTimeout)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(queryTimeout)); err != nil {
		return nil, err
	}
	const protocol = "\x00\x03\x00\x00"
	asked := false
	_, err = c.Write(message("", protocol+"user\x00"+user+"\x00database\x00"+database+"\x00\x00"))
	for err == nil {
		head := make([]byte, 5)
		if _, err := io.ReadFull(c, head); err != nil {
			return nil, err
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(c, body); err != nil {
			return nil, err
		}
		switch kind := head[0]; {
		case kind == 'R' && binary.BigEndian.Uint32(body) == 3: // wants the password
			_, err = c.Write(message("p", s.password+"\x00"))
		case kind == 'Z' && !asked: // is ready
			asked = true
			_, err = c.Write(message("Q", sql+"\x00"))
		case kind == 'Z':
			return rows, nil
		case kind == 'D': // the number of columns, then the length of each and its value
			n := max(0, int(int32(binary.BigEndian.Uint32(body[2:]))))
			rows = append(rows, string(body[6:6+n]))
		case kind == 'E':
			return nil, serverError(string(body))
		}
	}
	return nil, err
}

// queryTimeout bounds the creation of a database on a busy machine.
const queryTimeout = time.Minute

func message(kind, body string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte(kind), uint32(4+len(body))), body...)
}

// serverError reads fields that are a letter and a text each: C for the code, M for the message.
func serverError(body string) error {
	var code, text string
	for field := range strings.SplitSeq(body, "\x00") {
		if rest, ok := strings.CutPrefix(field, "C"); ok {
			code = rest
		}
		if rest, ok := strings.CutPrefix(field, "M"); ok {
			text = rest
		}
	}
	if text == "" {
		return errors.New("an error without message")
	}
	return fmt.Errorf("%s (SQLSTATE %s)", text, code)
}
