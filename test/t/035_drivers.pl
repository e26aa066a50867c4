
# Drivers of applications: the retry loops of demo/ do what they say, with psycopg, JDBC and pgx,
# pools inside applications do what the recipes say, and parameters may have the types that the
# drivers send.  test/packages does not install pgx, which takes long to compile.

use strict;
use warnings;

use IPC::Run;
use List::Util qw(first);
use FindBin;

use ZklockTest;

my $demo = "$FindBin::RealBin/../../demo";
my $go_path = '/usr/share/gocode';
my $pgx = first { -x '/usr/bin/go' && -d "$go_path/src/github.com/jackc/pgx/$_" } qw(v5 v4);

# A program with pgx, written for version 5, is compiled in the background, because that takes
# a while.  Returns the program and the compiler.
sub compile_go
{
	my ($name, $text) = @_;
	my $program = PostgreSQL::Test::Utils::tempdir() . "/$name";
	$text =~ s{pgx/v5/pgconn}{pgconn}, $text =~ s{pgx/v5}{pgx/v4} if $pgx eq 'v4';
	append_to_file("$program.go", $text);
	local %ENV = (%ENV, GO111MODULE => 'off', GOPATH => $go_path);
	return ($program, IPC::Run::start([ 'go', 'build', '-o', $program, "$program.go" ]));
}

my ($go_retry, $go_compiler) = $pgx ? compile_go('retry', slurp_file("$demo/retry.go")) : ();
my $zk = ZooKeeper->new;
my $node = ZklockNode->started('a', $zk, 'zklock.session_timeout' => '20s', 'zklock.linger' => 0,
	'zklock.connection_timeout' => '1s', 'listen_addresses' => '127.0.0.1');
my $watcher = $node->backend;
$watcher->query(q{CREATE TABLE done (driver text)});
$watcher->query(q{CREATE TABLE gate (open boolean)});
$watcher->query(q{
	CREATE FUNCTION wait_for_gate() RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		WHILE NOT EXISTS (SELECT FROM gate) LOOP
			PERFORM pg_sleep(0.01);
		END LOOP;
	END $$});

my $starting = ZklockNode->started('b', $zk, 'hot_standby' => 'off', 'wal_level' => 'replica', 'listen_addresses' => '127.0.0.1');
$starting->safe_psql('postgres', q{CREATE TABLE done (driver text)});

my $user = $watcher->query('SELECT current_user');
my $address = '127.0.0.1:' . $node->port;
my %driver = (
	psycopg => [ '/usr/bin/python3', "$demo/retry.py", "postgresql://$user\@$address/postgres" ],
	JDBC => [ qw(java -XX:TieredStopAtLevel=1 -cp /usr/share/java/postgresql.jar), "$demo/Retry.java",
		"jdbc:postgresql://$address/postgres?user=$user" ]);
$driver{pgx} = [ $go_retry, "postgresql://$user\@$address/postgres" ] if $pgx;

# Run a statement in a transaction under the lock /retry.
sub start_driver
{
	my ($driver, $statement, $on) = @_;
	my %run = (out => '', err => '');
	my @command = @{ $driver{$driver} };
	$command[-1] =~ s/$address/'127.0.0.1:' . $on->port/e if $on;
	$run{harness} = IPC::Run::start([ @command, '/retry', $statement ],
		'<', \undef, '>', \$run{out}, '2>', \$run{err},
		$run{timer} = IPC::Run::timer($PostgreSQL::Test::Utils::timeout_default));
	return \%run;
}

sub wait_for_message
{
	my ($run, $pattern) = @_;
	until ($run->{err} =~ $pattern)
	{
		die "ended too early: $run->{err}" unless $run->{harness}->pumpable;
		$run->{harness}->pump;
	}
	return pass($pattern);
}

sub succeeds
{
	my ($run, $what) = @_;
	ok($run->{harness}->finish, "$what: succeeds") or diag($run->{err});
	return;
}

foreach my $driver (sort keys %driver)
{
	ok($go_compiler->finish, 'pgx: compiled') if $driver eq 'pgx';

	my $work = "WITH w AS MATERIALIZED (SELECT wait_for_gate()) INSERT INTO done SELECT '$driver' FROM w";
	my $count = "SELECT count(*) FROM done WHERE driver = '$driver'";

	# The lock is lost while the statement runs: nothing is committed, and the second attempt is.
	my $run = start_driver($driver, $work);
	$node->wait_until(q{SELECT count(*) = 1 FROM zk_locks WHERE path = '/retry' AND claim = 'held'});
	is($watcher->query(q{SELECT zk_lock_force_release('/retry')}), '1', "$driver: the lock is taken away");
	wait_for_message($run, qr/attempt 1 failed with ZK001/);
	is($watcher->query($count), '0', "$driver: nothing was committed");
	$watcher->query('INSERT INTO gate VALUES (true)');
	succeeds($run, "$driver, after a loss");
	is($watcher->query($count), '1', "$driver: committed once");

	# ZooKeeper is away for a while.
	$zk->stop;
	$node->wait_until_away;
	$run = start_driver($driver, $work);
	wait_for_message($run, qr/attempt 1 failed with 08006/);
	$zk->start;
	succeeds($run, "$driver, without ZooKeeper at first");
	is($watcher->query($count), '2', "$driver: committed once more");

	# PostgreSQL starts: a standby that is not hot refuses connections with 57P03.
	$starting->stop;
	$starting->set_standby_mode;
	$starting->start;
	$run = start_driver($driver, "INSERT INTO done SELECT '$driver'", $starting);
	wait_for_message($run, qr/attempt 1 failed with/);
	$starting->promote;
	succeeds($run, "$driver, while PostgreSQL starts");
	is($starting->safe_psql('postgres', $count), '1', "$driver: committed there");
	$watcher->query('DELETE FROM gate');

	# To do the same again would take as long again.
	$run = start_driver($driver, q{SELECT zk_xact_lock_acquire('/short', lease_time => '200 ms'), pg_sleep(180)});
	ok(!$run->{harness}->finish, "$driver: a lease time that is over is no reason to retry");
	like($run->{err}, qr/lease time of lock "\/short" is over/, "$driver: the error");
	unlike($run->{err}, qr/attempt/, "$driver: no other attempt");
}

# Each line is what was tried, and what came of it.
sub results_of
{
	my (@command) = @_;
	my ($out, $err) = ('', '');
	IPC::Run::run(\@command, '>', \$out, '2>', \$err);
	diag($err) if $err;
	return $out;
}

# --- pools ---

# A session-level lock stays when its connection has come back to the pool, but not if the pool
# is made as the recipes show.
my @recipes = slurp_file("$demo/../doc/recipes.md") =~ /^```python\n(.*?)^```$/msg;
my ($psycopg_pool) = grep { /reset=reset/ } @recipes;
my ($sqlalchemy) = grep { /create_engine/ } @recipes;
my $begin = <<'END';
import sys, time, psycopg
url = conninfo = sys.argv[1]
def held():
    with psycopg.connect(conninfo) as connection:
        return connection.execute("SELECT count(*) FROM zk_locks WHERE path = '/pool' AND claim = 'held'").fetchone()[0]
END
my $use_psycopg_pool = <<'END';
for i in 1, 2:
    with pool.connection() as connection:
        connection.execute("SELECT zk_lock_acquire('/pool')", prepare=True)
    while pool.get_stats()["pool_available"] < pool.get_stats()["pool_size"]:
        time.sleep(0.01)
    print(held())
pool.close()
END
my $use_sqlalchemy = <<'END';
from sqlalchemy import text
for i in 1, 2:
    with engine.connect() as connection:
        connection.execute(text("SELECT zk_lock_acquire('/pool')"))
    print(held())
END

foreach ([ 'psycopg_pool', $psycopg_pool, qr/, reset=reset/, $use_psycopg_pool ],
	[ 'SQLAlchemy', $sqlalchemy, qr/\@event.*/s, $use_sqlalchemy ])
{
	my ($name, $recipe, $advice, $use) = @$_;
	my @python = ('/usr/bin/python3', '-c');

	$recipe =~ s{ConnectionPool\(conninfo}{$&, min_size=1};		# always the same connection
	is(results_of(@python, $begin . $recipe . $use, $driver{psycopg}[2]), "0\n0\n", "$name, as in the recipe: no lock stays");
	$recipe =~ s/$advice//;
	is(results_of(@python, $begin . $recipe . $use, $driver{psycopg}[2]), "1\n1\n", "$name, without its advice: the lock stays");
	$node->wait_until_clean('/pool');
}

my $hikari = '/usr/share/java/HikariCP.jar';
SKIP: {
	skip 'there is no HikariCP', 1 if !-e $hikari;

	$watcher->query('CREATE ROLE site LOGIN; ALTER ROLE site SET zklock.session_level = off');
	my $text = PostgreSQL::Test::Utils::tempdir() . '/Pool.java';
	append_to_file($text, <<'END');
import java.sql.*;
import com.zaxxer.hikari.*;

public class Pool {
    static void show(HikariDataSource pool, String query) throws SQLException {
        try (Connection connection = pool.getConnection(); Statement statement = connection.createStatement()) {
            ResultSet result = statement.executeQuery(query);
            result.next();
            System.out.println(result.getString(1));
        } catch (SQLException e) {
            System.out.println(e.getSQLState());
        }
    }

    public static void main(String[] args) throws Exception {
        for (String user : new String[] { args[1], "site" }) {
            HikariConfig config = new HikariConfig();
            config.setJdbcUrl(args[0].replaceFirst("user=.*", "user=" + user));
            config.setMaximumPoolSize(1);
            try (HikariDataSource pool = new HikariDataSource(config)) {
                show(pool, "SELECT zk_lock_acquire('/pool')");
                show(pool, "SELECT zk_lock_is_held('/pool')");
                show(pool, "SELECT zk_xact_lock_acquire('/pool')");
            }
        }
    }
}
END
	my @java = @{ $driver{JDBC} }[ 0 .. 2 ];
	is(results_of(@java, join(':', $driver{JDBC}[3], $hikari, '/usr/share/java/slf4j-api.jar', '/usr/share/java/slf4j-nop.jar'),
			$text, $driver{JDBC}[-1], $user), <<'END', 'HikariCP: the lock stays, but for a role that cannot acquire it');
t
t
t
42501
f
t
END
}

# --- types of parameters ---

my $python = <<'END';
import sys, psycopg
from datetime import date, datetime, timedelta, timezone

connection = psycopg.connect(sys.argv[1], autocommit=True)

def show(what, call, *parameters):
    try:
        result = connection.execute("SELECT " + call, parameters).fetchone()[0]
        print(what + ":", type(result).__name__, "" if type(result) is int else result)
    except psycopg.Error as error:
        print(what + ":", error.sqlstate)

for what, timeout in (("str", "5 s"), ("timedelta", timedelta(seconds=5)), ("None", None), ("int", 5), ("float", 0.5)):
    show(what, "zk_lock_acquire(%s, %s)", "/types", timeout)
show("int, cast", "zk_lock_acquire(%s, %s::interval)", "/types", 5)
show("int, made", "zk_lock_acquire(%s, make_interval(secs => %s))", "/types", 5)
show("float, made", "zk_lock_acquire(%s, make_interval(secs => %s))", "/types", 0.5)
show("leases", "zk_semaphore_acquire(%s, %s, %s)", "/leases", 3, "30 s")
show("list", "zk_multilock_acquire(%s)", ["/types/1", "/types/2"])
show("token", "zk_lock_token(%s)", "/types")
show("null path", "zk_lock_acquire(%s)", None)
tick = datetime(2024, 5, 5, 2, tzinfo=timezone.utc)
for what, value in (("aware", tick), ("naive", datetime(2024, 5, 5, 2)), ("date", date(2024, 5, 5)), ("text", "2024-05-05 02:00Z"), ("no tick", None)):
    show(what, "zk_run_once(%s, %s)", "/job/" + what, value)
show("same tick", "zk_run_once(%s, %s, retry => %s, spacing => %s)", "/job/aware", "2024-05-05 04:00+02", True, timedelta(hours=1))
END
is(results_of('/usr/bin/python3', '-c', $python, $driver{psycopg}[2]), <<'END' , 'psycopg: types');
str: bool True
timedelta: bool True
None: bool True
int: 42883
float: 42883
int, cast: 42846
int, made: bool True
float, made: bool True
leases: bool True
list: bool True
token: int 
null path: 22023
aware: bool True
naive: bool True
date: bool True
text: bool True
no tick: 22023
same tick: bool False
END

my $java = PostgreSQL::Test::Utils::tempdir() . '/Types.java';
append_to_file($java, <<'END');
import java.sql.*;
import java.time.*;

public class Types {
    static Connection connection;

    interface Setter { void set(PreparedStatement statement) throws SQLException; }

    // The path is the first parameter, and the setter has the others.
    static void show(String what, String call, String path, Setter setter) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement("SELECT " + call)) {
            statement.setString(1, path);
            setter.set(statement);
            ResultSet result = statement.executeQuery();
            result.next();
            Object value = result.getObject(1);
            System.out.println(what + ": " + (value instanceof Long ? "Long" : value));
        } catch (SQLException e) {
            System.out.println(what + ": " + e.getSQLState());
        }
    }

    public static void main(String[] args) throws Exception {
        String lock = "zk_lock_acquire(?, ?)", cast = "zk_lock_acquire(?, ?::interval)";
        String made = "zk_lock_acquire(?, make_interval(secs => ?))";
        OffsetDateTime tick = OffsetDateTime.parse("2024-05-05T02:00Z");

        connection = DriverManager.getConnection(args[0]);
        show("setString", lock, "/types", s -> s.setString(2, "5 s"));
        show("setString, cast", cast, "/types", s -> s.setString(2, "5 s"));
        show("Duration, cast", cast, "/types", s -> s.setString(2, Duration.ofSeconds(5).toString()));
        show("PGInterval", lock, "/types", s -> s.setObject(2, new org.postgresql.util.PGInterval("5 s")));
        show("setInt", lock, "/types", s -> s.setInt(2, 5));
        show("setInt, cast", cast, "/types", s -> s.setInt(2, 5));
        show("setInt, made", made, "/types", s -> s.setInt(2, 5));
        show("setDouble, made", made, "/types", s -> s.setDouble(2, 0.5));
        show("null", lock, "/types", s -> s.setObject(2, null));
        show("null of setString", lock, "/types", s -> s.setString(2, null));
        show("null of setString, cast", cast, "/types", s -> s.setString(2, null));
        show("leases", "zk_semaphore_acquire(?, ?, ?::interval)", "/leases", s -> {
            s.setInt(2, 3);
            s.setString(3, "30 s");
        });
        show("leases, setLong", "zk_semaphore_acquire(?, ?)", "/leases", s -> s.setLong(2, 3));
        show("array", "zk_multilock_acquire(ARRAY[?, ?])", "/types/1", s -> s.setString(2, "/types/2"));
        show("token", "zk_lock_token(?)", "/types", s -> { });
        show("null path", "zk_lock_acquire(?)", null, s -> { });
        show("OffsetDateTime", "zk_run_once(?, ?)", "/job/1", s -> s.setObject(2, tick));
        show("Timestamp", "zk_run_once(?, ?)", "/job/2", s -> s.setTimestamp(2, Timestamp.from(tick.toInstant())));
        show("text", "zk_run_once(?, ?)", "/job/3", s -> s.setString(2, "2024-05-05 02:00Z"));
        show("text, cast", "zk_run_once(?, ?::timestamptz)", "/job/3", s -> s.setString(2, "2024-05-05 02:00Z"));
        show("no tick", "zk_run_once(?, ?)", "/job/4", s -> s.setObject(2, null));
        show("same tick", "zk_run_once(?, ?, retry => ?, spacing => ?::interval)", "/job/1", s -> {
            s.setTimestamp(2, Timestamp.from(tick.toInstant()));
            s.setBoolean(3, true);
            s.setString(4, "1 h");
        });

        // Or let the server find out the types of all text parameters.
        connection = DriverManager.getConnection(args[0] + "&stringtype=unspecified");
        show("unspecified", lock, "/unspecified", s -> s.setString(2, "5 s"));
    }
}
END
is(results_of(@{ $driver{JDBC} }[ 0 .. 3 ], $java, $driver{JDBC}[-1]), <<'END', 'JDBC: types');
setString: 42883
setString, cast: true
Duration, cast: true
PGInterval: true
setInt: 42883
setInt, cast: 42846
setInt, made: true
setDouble, made: true
null: true
null of setString: 42883
null of setString, cast: true
leases: true
leases, setLong: 42883
array: true
token: Long
null path: 22023
OffsetDateTime: true
Timestamp: true
text: 42883
text, cast: true
no tick: 22023
same tick: false
unspecified: true
END

SKIP: {
	skip 'there is no Go, or no pgx', 1 if !$pgx;

	my $text = <<'END';
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var connection *pgx.Conn

func show(what, call string, parameters ...any) {
	var result any
	var refused *pgconn.PgError

	err := connection.QueryRow(context.Background(), "SELECT "+call, parameters...).Scan(&result)
	if _, number := result.(int64); number {
		result = "int64"
	}
	switch {
	case errors.As(err, &refused):
		result = refused.Code
	case err != nil:
		result = "not sent"
	}
	fmt.Printf("%s: %v\n", what, result)
}

func main() {
	var err error
	connection, err = pgx.Connect(context.Background(), os.Args[1])
	if err != nil {
		panic(err)
	}
	lock, made := "zk_lock_acquire($1, $2)", "zk_lock_acquire($1, make_interval(secs => $2))"
	show("string", lock, "/types", "5 s")
	show("Duration", lock, "/types", 5*time.Second)
	show("nil", lock, "/types", nil)
	show("int", lock, "/types", 5)
	show("float64", lock, "/types", 0.5)
	show("no interval", lock, "/types", "soon")
	show("int, cast", "zk_lock_acquire($1, $2::interval)", "/types", 5)
	show("int, made", made, "/types", 5)
	show("float64, made", made, "/types", 0.5)
	show("leases", "zk_semaphore_acquire($1, $2, $3)", "/leases", 3, 30*time.Second)
	show("leases, int64", "zk_semaphore_acquire($1, $2)", "/leases", int64(3))
	show("slice", "zk_multilock_acquire($1)", []string{"/types/1", "/types/2"})
	show("token", "zk_lock_token($1)", "/types")
	show("nil path", "zk_lock_acquire($1)", nil)
	tick := time.Date(2024, 5, 5, 2, 0, 0, 0, time.UTC)
	show("Time", "zk_run_once($1, $2)", "/job/Time", tick)
	show("text", "zk_run_once($1, $2)", "/job/string", "2024-05-05 02:00Z")
	show("no tick", "zk_run_once($1, $2)", "/job/nil", nil)
	show("same tick", "zk_run_once($1, $2, retry => $3, spacing => $4)", "/job/Time",
		tick.In(time.FixedZone("", 7200)), true, time.Hour)

	// Without prepared statements, pgx does not know the types.
	show("simple, string", lock, pgx.QueryExecModeSimpleProtocol, "/types", "5 s")
	show("simple, Duration", lock, pgx.QueryExecModeSimpleProtocol, "/types", 5*time.Second)
	show("exec, string", lock, pgx.QueryExecModeExec, "/types", "5 s")
	show("exec, Duration", lock, pgx.QueryExecModeExec, "/types", 5*time.Second)
}
END
	my $expected = <<'END';
string: true
Duration: true
nil: true
int: not sent
float64: not sent
no interval: 22007
int, cast: not sent
int, made: true
float64, made: true
leases: true
leases, int64: true
slice: true
token: int64
nil path: 22023
Time: true
text: true
no tick: 22023
same tick: false
simple, string: true
simple, Duration: true
exec, string: true
exec, Duration: true
END
	if ($pgx eq 'v4')			# knows one of these modes, under another name
	{
		$text =~ s/QueryExecModeSimpleProtocol/QuerySimpleProtocol(true)/g;
		s/^\N*\bexec, .*\n//mg foreach $text, $expected;
	}
	my ($program, $compiler) = compile_go('types', $text);
	ok($compiler->finish, 'pgx: types are compiled');
	is(results_of($program, $driver{pgx}[1]), $expected, 'pgx: types');
}

done_testing();
