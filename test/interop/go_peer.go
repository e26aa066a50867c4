// A Go service on go-zookeeper, for tests: one request a line in, answers out.
//
//	go_peer HOSTS SESSION_TIMEOUT_MS [USER:PASSWORD]
//
// With a user, clients authenticate, and what they make is only for that user.
//
// The protocol is that of InteropPeer.pm, which compiles this program and drives it.  An actor is a
// goroutine: what one is asked to do, it does in that order.  There is one kind of lock, "mutex", which is
// the library's Lock.  That has neither a try nor a timeout.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/go-zookeeper/zk"
)

const clockMonotonic = 1

var hosts []string
var sessionTimeout time.Duration
var identity string
var acl = zk.WorldACL(zk.PermAll)

var clients = map[string]*zk.Conn{}
var actors = map[string]*actor{}
var output sync.Mutex

type request struct {
	id, actor, op string
	args          []string
}

type actor struct {
	name   string
	client *zk.Conn
	queue  chan request
	locks  map[string]*zk.Lock
}

// Errors are answered with the class that their text begins with: "zk", "strconv.Atoi".
func (r request) answer(value interface{}, err error) {
	output.Lock()
	defer output.Unlock()
	if err != nil {
		fmt.Printf("%s error %s\n", r.id, strings.Join(strings.Fields(err.Error()), " "))
	} else {
		fmt.Printf("%s ok %v\n", r.id, value)
	}
}

func (r request) arg(i int, otherwise string) string {
	if i < len(r.args) {
		return r.args[i]
	}
	return otherwise
}

func clientOf(name string) string { return strings.Split(name, ".")[0] }

type silent struct{}

func (silent) Printf(string, ...interface{}) {}

// Like the locks, a client outlives the end of its session: it begins another one by itself.
func client(name string) (*zk.Conn, error) {
	if conn := clients[name]; conn != nil {
		return conn, nil
	}
	conn, events, err := zk.Connect(hosts, sessionTimeout, zk.WithLogger(silent{}))
	if err != nil {
		return nil, err
	}
	for event := range events {
		if event.State == zk.StateHasSession {
			break
		}
	}
	if identity != "" {
		if err := conn.AddAuth("digest", []byte(identity)); err != nil {
			return nil, err
		}
	}
	clients[name] = conn
	return conn, nil
}

func clock() int64 {
	var t syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&t)), 0)
	return t.Nano()
}

func (a *actor) run() {
	for r := range a.queue {
		r.answer(a.perform(r))
	}
}

func (a *actor) perform(r request) (interface{}, error) {
	if r.arg(0, "") != "mutex" || r.arg(1, "") == "" {
		return nil, fmt.Errorf("usage: no such lock: %v", r.args)
	}
	path := r.args[1]
	switch r.op {
	case "acquire":
		if r.arg(2, "-") != "-" {
			return nil, fmt.Errorf("usage: Lock has no timeout")
		}
		return "t", a.lock(path).Lock()
	case "release":
		return "t", a.release(path)
	case "hammer":
		return a.hammer(path, r.arg(2, ""), r.arg(3, "0"), r.arg(4, "0"))
	}
	return nil, fmt.Errorf("usage: no such operation: %s", r.op)
}

func (a *actor) lock(path string) *zk.Lock {
	if a.locks[path] == nil {
		a.locks[path] = zk.NewLock(a.client, path, acl)
	}
	return a.locks[path]
}

// A lock that was lost cannot be locked again, so the next one is new.
func (a *actor) release(path string) error {
	err := a.lock(path).Unlock()
	if err != nil {
		delete(a.locks, path)
	}
	return err
}

// Until so many rounds are done or "stop" is in the directory; 0 is endless.
func (a *actor) hammer(path, directory, rounds, holdMicros string) (interface{}, error) {
	wanted, _ := strconv.Atoi(rounds)
	hold, _ := time.ParseDuration(holdMicros + "us")
	counter, err := os.OpenFile(directory+"/counter", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer counter.Close()
	history, err := os.OpenFile(directory+"/history", os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil, err
	}
	defer history.Close()

	done := 0
	for ; wanted == 0 || done < wanted; done++ {
		if _, err := os.Stat(directory + "/stop"); err == nil {
			break
		}
		if err := a.lock(path).Lock(); err != nil {
			return nil, err
		}
		a.section(counter, history, hold)
		if err := a.release(path); err != nil {
			return nil, err
		}
	}
	return done, nil
}

// The critical section.  See History.pm, which has the same and checks it.
func (a *actor) section(counter, history *os.File, hold time.Duration) {
	begin := clock()
	digits := make([]byte, 12)
	counter.ReadAt(digits, 0)
	value, _ := strconv.Atoi(string(digits))
	time.Sleep(hold)
	counter.WriteAt([]byte(fmt.Sprintf("%012d", value+1)), 0)
	fmt.Fprintf(history, "%d %d x %d %s\n", begin, clock(), value, a.name)
}

// Operations that do not wait for a busy actor are done here, the rest by its goroutine.
func dispatch(r request) {
	conn, err := client(clientOf(r.actor))
	if err != nil {
		r.answer(nil, err)
		return
	}
	switch r.op {
	case "session":
		r.answer(fmt.Sprintf("0x%x", conn.SessionID()), nil)
	case "clock":
		r.answer(clock(), nil)
	case "close":
		conn.Close()
		delete(clients, clientOf(r.actor))
		for name := range actors {
			if clientOf(name) == clientOf(r.actor) {
				delete(actors, name)
			}
		}
		r.answer("t", nil)
	default:
		if actors[r.actor] == nil {
			actors[r.actor] = &actor{r.actor, conn, make(chan request, 16), map[string]*zk.Lock{}}
			go actors[r.actor].run()
		}
		actors[r.actor].queue <- r
	}
}

func main() {
	hosts = strings.Split(os.Args[1], ",")
	ms, _ := strconv.Atoi(os.Args[2])
	sessionTimeout = time.Duration(ms) * time.Millisecond
	if len(os.Args) > 3 {
		identity = os.Args[3]
		acl = zk.AuthACL(zk.PermAll)
	}

	requests := bufio.NewScanner(os.Stdin)
	for requests.Scan() {
		words := strings.Fields(requests.Text())
		if len(words) < 3 {
			fmt.Printf("? error usage: %s\n", requests.Text())
			continue
		}
		dispatch(request{words[0], words[1], words[2], words[3:]})
	}
	os.Exit(0) // the test is gone: no good-byes, as if the service had died
}
