
# Claims that belong to no session, through PgBouncer in transaction mode: clients take turns, and are
# killed at each step; and the programs in demo/ do what they say.

use strict;
use warnings;

use FindBin;
use IPC::Run;

use PgBouncer;
use ZklockTest;

plan skip_all => 'there is no pgbouncer' unless PgBouncer->program;

my $zk = ZooKeeper->new;
my %settings = ('zklock.session_timeout' => '20s', 'zklock.linger' => 0);
my $north = ZklockNode->started('north', $zk, %settings);
my $south = ZklockNode->started('south', $zk, %settings);
my ($n, $s) = map { $_->backend } $north, $south;
$n->query('CREATE TABLE done (v text); CREATE ROLE site LOGIN; GRANT ALL ON done TO site; ALTER ROLE site SET zklock.session_level = off');
my $pooler = PgBouncer->new($north,
	one => 'pool_mode=transaction pool_size=1',
	two => 'pool_mode=transaction pool_size=2',
	pgbouncer => 'listen_addr = 127.0.0.1');
my $pid = $n->query('SELECT pg_backend_pid()');

sub call { my ($backend, $function, $claim, @more) = @_; return $backend->query("SELECT $function('" . join("', '", $claim, @more) . q{')}); }
sub number { my ($what) = @_; return $n->query("SELECT count(*) FROM $what"); }
sub free_for_south
{
	my ($path, $what) = @_;
	is($s->query("SELECT zk_lock_acquire('$path', '1 min')"), 't', "$what: the other server gets the lock");
	$s->query("SELECT zk_lock_release('$path')");
	return;
}

# --- clients take turns on one connection ---

my ($c1, $c2) = map { $pooler->backend('one') } 1 .. 2;
is($c1->query('SELECT pg_backend_pid()'), $c2->query('SELECT pg_backend_pid()'), 'the clients share a connection');
my $claim = call($c1, 'zk_claim_request', '/p', '1 h');
is(call($c2, 'zk_claim_wait', $claim, '1 min'), 't', 'what one has requested, the other waits for');
my $other = call($c2, 'zk_claim_request', '/p', '1 h');
is(call($c2, 'zk_claim_wait', $other, '10 ms'), 'f', 'but its own claim has to wait');
$c1->query('BEGIN');
call($c1, 'zk_xact_claim_use', $claim);
$c1->query(q{INSERT INTO done VALUES ('one')});
is($c1->errcode('COMMIT'), '', 'committed');
is(call($c2, 'zk_claim_release', $claim), 't', 'released over the same connection');
is(call($c1, 'zk_claim_wait', $other, '1 min'), 't', 'then it is the other claim');
call($c1, 'zk_claim_release', $other);

# --- killed at each step ---

# Each step of a client that is killed right after it, or while it is under way.  Nothing is left but the
# claim, which ends with its lease time.
my %steps = (
	'requested' => sub { },
	'waits' => sub { my ($client, $name) = @_; $s->query(q{SELECT zk_lock_acquire('/k')}); return; },
	'granted' => sub { my ($client, $name) = @_; call($client, 'zk_claim_wait', $name, '1 min'); },
	'uses' => sub { my ($client, $name) = @_; call($client, 'zk_claim_wait', $name, '1 min'); $client->query('BEGIN'); call($client, 'zk_xact_claim_use', $name); },
	'works' => sub {
		my ($client, $name) = @_;
		call($client, 'zk_claim_wait', $name, '1 min');
		$client->query('BEGIN');
		call($client, 'zk_xact_claim_use', $name);
		$client->query(q{INSERT INTO done VALUES ('killed')});
	},
	'committed' => sub {
		my ($client, $name) = @_;
		call($client, 'zk_claim_wait', $name, '1 min');
		$client->query('BEGIN');
		call($client, 'zk_xact_claim_use', $name);
		$client->query(q{INSERT INTO done VALUES ('committed')});
		$client->query('COMMIT');
	});
foreach my $step (sort keys %steps)
{
	my $client = $pooler->backend('two');
	my $name;
	if ($step eq 'waits')
	{
		$steps{$step}->();
		$name = call($client, 'zk_claim_request', '/k', '2 s');
		$client->send("SELECT zk_claim_wait('$name')");
		$n->wait_until("SELECT waiting_pid IS NOT NULL FROM zk_claims WHERE claim = '$name'");
	}
	else
	{
		$name = call($client, 'zk_claim_request', '/k', '1 h');
		$steps{$step}->($client, $name);
	}
	$client->kill_client;
	is(call($n, 'zk_claim_renew', $name, '1 s'), 't', "killed, $step: it has one more second") if $step ne 'waits';
	$s->query(q{SELECT zk_lock_release('/k')}) if $step eq 'waits';
	free_for_south('/k', "killed, $step");
	$n->wait_until('SELECT NOT EXISTS (SELECT FROM zk_claims)');
	$n->wait_until(q{SELECT NOT EXISTS (SELECT FROM zk_locks WHERE claim IS NOT NULL)});
	pass("killed, $step: nothing is left");
}
is($n->query(q{SELECT string_agg(v, ' ' ORDER BY v) FROM done}), 'committed one', 'what was committed');

# The pooler dies: the claim stays, and goes on without it.
$claim = call($c1, 'zk_claim_request', '/p', '1 h');
is(call($c1, 'zk_claim_wait', $claim, '1 min'), 't', 'granted');
my $dying = PgBouncer->new($north, one => 'pool_mode=transaction pool_size=1');
my $d = $dying->backend('one');
$d->query('BEGIN');
call($d, 'zk_xact_claim_use', $claim);
$d->query(q{INSERT INTO done VALUES ('pooler')});
$dying->stop('KILL');
$n->wait_until(q{SELECT count(*) = 1 FROM zk_locks WHERE path = '/p' AND claim IS NOT NULL});
is(number(q{done WHERE v = 'pooler'}), '0', 'the pooler is killed: the transaction is rolled back');
is(call($c2, 'zk_claim_renew', $claim, '1 h'), 't', 'and the claim is still there');
is(call($c2, 'zk_claim_release', $claim), 't', 'released');
eval { $d->kill_client };

# --- the programs for psycopg and JDBC ---

my $demo = "$FindBin::RealBin/../../demo";
my $python = slurp_file("$demo/claims.py");
my $user = $n->query('SELECT current_user');
my $port = $pooler->port;

sub results_of
{
	my (@command) = @_;
	my ($out, $err) = ('', '');
	IPC::Run::run(\@command, '<', \undef, '>', \$out, '2>', \$err, IPC::Run::timer($PostgreSQL::Test::Utils::timeout_default));
	diag($err) if $err;
	return $out;
}

is(results_of('/usr/bin/python3', '-c', "$python\n" . <<'END', "postgresql://$user\@127.0.0.1:$port/two"), "True\n0 True\n1 0\n", 'psycopg');
import sys
conninfo = sys.argv[1]
def ask(query):
    with psycopg.connect(conninfo, prepare_threshold=None) as connection:
        return connection.execute(query).fetchone()[0]
with lock(conninfo, "/jobs/import", "1 min") as claim:
    print(call(conninfo, "zk_claim_renew", claim, "1 hour"))
    try:
        with transaction(conninfo, claim) as (connection, token):
            connection.execute("INSERT INTO done VALUES ('psycopg')")
            raise KeyError
    except KeyError:
        pass
    print(ask("SELECT count(*) FROM done WHERE v = 'psycopg'"), token > 0)
    with transaction(conninfo, claim) as (connection, token):
        connection.execute("INSERT INTO done VALUES ('psycopg')")
print(ask("SELECT count(*) FROM done WHERE v = 'psycopg'"), ask("SELECT count(*) FROM zk_claims"))
END

# Two programs at a time: each of their transactions counts from what the other one has committed.
$n->query('CREATE TABLE counter (n integer); INSERT INTO counter VALUES (0)');
my $count = "$python\n" . <<'END';
import sys
for i in range(10):
    with lock(sys.argv[1], "/jobs/count", "1 min") as claim:
        with transaction(sys.argv[1], claim) as (connection, token):
            n = connection.execute("SELECT n FROM counter").fetchone()[0]
            connection.execute("UPDATE counter SET n = %s", [n + 1])
END
my @errors = ('', '');
my @programs = map { IPC::Run::start([ '/usr/bin/python3', '-c', $count, "postgresql://$user\@127.0.0.1:$port/two" ],
	'<', \undef, '>', '/dev/null', '2>', \$errors[$_], IPC::Run::timer($PostgreSQL::Test::Utils::timeout_default)) } 0 .. 1;
$_->finish foreach @programs;
is("@errors", ' ', 'two programs at a time: no errors');
is($n->query('SELECT n FROM counter'), '20', 'two programs at a time: no update is lost');

my $jar = '/usr/share/java/postgresql.jar';
SKIP: {
	skip 'there is no JDBC', 1 if !-e $jar;
	results_of('java', '-XX:TieredStopAtLevel=1', '-cp', $jar, "$demo/Claims.java", "jdbc:postgresql://127.0.0.1:$port/two?user=$user&prepareThreshold=0", '/jobs/java');
	is($n->query(q{SELECT (SELECT count(*) FROM done WHERE v = 'JDBC') || ' ' || (SELECT count(*) FROM zk_claims)}), '1 0', 'JDBC');
}

# A role that may not acquire session-level locks may request claims.
my $site = $north->backend(extra_params => [ '-U', 'site' ]);
is($site->errcode(q{SELECT zk_lock_acquire('/site')}), '42501', 'a role without session-level locks');
like(call($site, 'zk_claim_request', '/site', '1 min'), qr/^north/, 'may request a claim');
is($site->query('SELECT zk_claim_release(claim) FROM zk_claims'), 't', 'and release it');

$_->quit foreach $site, $c1, $c2, $n, $s;
done_testing();
