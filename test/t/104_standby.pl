
# Copies of a server: a hot standby, a base backup, a plain copy of its files.

use strict;
use warnings;

use ZklockTest;

my $zk = ZooKeeper->new;
my %settings = ('zklock.session_timeout' => '40s', 'zklock.linger' => 0);
my $node_a = ZklockNode->started('a', $zk, %settings, init => [ allows_streaming => 1 ]);
my $node_s = ZklockNode->standby('standby', $node_a);
$node_s->wait_until_connected;

my ($a1, $a2, $s1, $s2, $s3) = map { $_->backend } $node_a, $node_a, $node_s, $node_s, $node_s;
my $result;

# --- a hot standby ---

is($s1->query('SELECT pg_is_in_recovery()'), 't', 'a standby');
isnt($node_s->status('session_id'), $node_a->status('session_id'), 'has a session of its own');
is($node_s->status('node_name'), 'standby', 'and a name');

is($a1->query(acquire('/job')), 't', 'acquired on the primary');
is($s1->query(try('/job')), 'f', 'a try on the standby');
is($s1->query(acquire('/job', '200ms')), 'f', 'with a timeout');
$s1->send(acquire('/job'));
$zk->wait_for_children('/zklock/job', 2);
$s2->send(acquire('/job', '1min'));
$node_s->wait_for_waiter('/job', 2);
ok(!$s1->is_done, 'without one, it waits');
$a1->query(release('/job'));
is($s1->result->{out}, 't', 'and gets the lock');
is($a1->query(try('/job')), 'f', 'which then excludes the primary');
is($s3->query(acquire('/job', '200ms')), 'f', 'and others on the standby, until their timeout');
$s1->query(release('/job'));
is($s2->result->{out}, 't', 'but not those with more time');
is($s2->query(q{SELECT zk_lock_token('/job') > 0}), 't', 'token');
is($s2->query(acquire('/job')), 't', 'acquired again');
is($s2->query('SELECT zk_lock_release_all()'), '2', 'released');

$s1->query('BEGIN');
is($s1->query(q{SELECT zk_xact_lock_acquire('/xact')}), 't', 'transaction scope');
$s2->query('BEGIN');
is($s2->query(q{SELECT zk_xact_lock_acquire('/xact', '100ms')}), 'f', 'a timeout in a transaction');
$s2->query('SAVEPOINT s');
is($s2->query(q{SELECT zk_xact_lock_acquire('/other')}), 't', 'leaves it usable');
$s2->query('ROLLBACK TO s');
is($s2->query(held('/other')), 'f', 'a savepoint');
is($s2->run('COMMIT')->{err}, '', 'COMMIT');
is($s1->run('COMMIT')->{err}, '', 'COMMIT');
is($s1->query(held('/xact')), 'f', 'ends transaction scope');
$s1->query(q{SET lock_timeout = '100ms'});
$s2->query(acquire('/job'));
is($s1->errcode(acquire('/job')), '55P03', 'lock_timeout');
$s2->query(release('/job'));
$s1->query('RESET lock_timeout');

# A deadlock is found there, too.
$s1->query(q{BEGIN; SELECT zk_xact_lock_acquire('/d1')});
$s2->query(q{BEGIN; SELECT zk_xact_lock_acquire('/d2')});
$s1->send(q{SELECT zk_xact_lock_acquire('/d2')});
$node_s->wait_for_waiter('/d2', 1);
$s2->send(q{SELECT zk_xact_lock_acquire('/d1')});
my @errcodes = sort map { $_->result->{errcode} } $s1, $s2;
is("@errcodes", ' 40P01', 'a deadlock is found');
$_->query('ROLLBACK') foreach $s1, $s2;

# Recovery ends a wait with an error, wherever the backend waits, as for a lock of PostgreSQL's own.
$a1->query('CREATE TABLE wanted ()');
$node_a->wait_for_catchup($node_s, 'replay');
$node_s->set('max_standby_streaming_delay', '0');
$s1->query(q{SELECT zk_lock_acquire('/conflict'), pg_advisory_lock(1)});
$a1->query(acquire('/conflict on a'));
foreach ([ 'of PostgreSQL', 'SELECT pg_advisory_lock(1)', 'advisory' ],
	[ 'held in this server', acquire('/conflict'), 'advisory' ],
	[ 'held in this server, with a timeout', acquire('/conflict', '10min'), 'advisory' ],
	[ 'held in another server', acquire('/conflict on a'), 'Extension' ])
{
	my ($what, $wait, $event) = @$_;
	my ($result, $rollback);
	for (1 .. 5)
	{
		$s2->query('BEGIN; SELECT count(*) FROM wanted');
		$s2->send($wait);
		$node_s->wait_until("SELECT '$event' IN (wait_event, wait_event_type) FROM pg_stat_activity WHERE pid = " . $s2->pid);
		$a2->query('BEGIN; LOCK TABLE wanted; COMMIT');
		$result = $s2->result;
		$rollback = eval { $s2->run('ROLLBACK') };

		# Recovery signals again until the transaction has ended.  PostgreSQL ends the session if such a
		# signal comes behind the error.
		last if eval { $s2->query('SELECT 1') };
		$s2 = $node_s->backend;
	}
	is($result->{errcode}, '40001', "a conflict with recovery ends the wait for a lock $what");
	is($rollback && $rollback->{errcode}, '', 'but not the session');
	is($s2->query(q{SELECT count(*) FROM zk_locks WHERE pid = pg_backend_pid()}), '0', 'nothing is left of it');
	is($s2->query(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()}), '0', 'here neither');
}
$s1->query(q{SELECT zk_lock_release('/conflict'), pg_advisory_unlock(1)});
$a1->query(release('/conflict on a'));
$node_s->set('max_standby_streaming_delay', '30s');

# --- promoted while it holds and waits ---

$s1->query(acquire('/held'));
my $token = $s1->query(q{SELECT zk_lock_token('/held')});
$s2->query(q{BEGIN; SELECT zk_xact_lock_acquire('/held in xact')});
$a1->query(acquire('/waited'));
$s3->send(acquire('/waited'));
$zk->wait_for_children('/zklock/waited', 2);
my @before = split /\|/, $node_s->status('session_id, worker_pid, epoch');
$node_s->promote;
is($s1->query('SELECT pg_is_in_recovery()'), 'f', 'promoted');
is_deeply([ split /\|/, $node_s->status('session_id, worker_pid, epoch') ],
	\@before, 'promoted: the same session');
is($s1->query(held('/held')), 't', 'promoted: the session-level lock is held');
is($s1->query(q{SELECT zk_lock_token('/held')}), $token, 'promoted: the same token');
is($a2->query(try('/held')), 'f', 'promoted: excludes the other server');
is($s2->query(held('/held in xact')), 't', 'promoted: transaction scope is held');
is($s2->run('COMMIT')->{err}, '', 'promoted: to its end');
is($s1->run('CREATE TABLE t ()')->{err}, '', 'promoted: the lock now guards what is written');
$a1->query(release('/waited'));
is($s3->result->{out}, 't', 'promoted: the waiter gets the lock');
$_->query('SELECT zk_lock_release_all()') foreach $s1, $s3;
$_->quit foreach $s1, $s2, $s3;
$node_s->stop;

# --- copies, started beside the server while it holds locks ---

sub configure_copy
{
	my ($node) = @_;
	$node->append_conf('postgresql.conf', 'port = ' . $node->port);
	$node->append_conf('postgresql.conf',
		$PostgreSQL::Test::Utils::use_unix_sockets
		? "unix_socket_directories = '" . $node->host . "'"
		: "listen_addresses = '" . $node->host . "'");
	return;
}

sub plain_copy
{
	my ($from, $name) = @_;
	my $copy = ZklockNode->new($name);
	mkdir $copy->basedir;
	system_or_bail('cp', '-a', $from->data_dir, $copy->data_dir);
	unlink $copy->data_dir . '/postmaster.pid';
	configure_copy($copy);
	return $copy;
}

sub is_left_alone
{
	my ($copy, $session, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$copy->wait_until_connected;
	isnt($copy->status('session_id'), $session, "$what: the copy has a session of its own");
	is($copy->safe_psql('postgres', try('/mine')), 'f', "$what: it is excluded");
	is($node_a->status('session_id'), $session, "$what: the session of the original goes on");
	is($node_a->status('expirations'), '0', "$what: it has not expired");
	is($a1->query(held('/mine')), 't', "$what: the original holds its lock");
	is($a1->query('CREATE TABLE IF NOT EXISTS t (); SELECT 1'), '1', "$what: and may commit");
	is(scalar(@{ $zk->children('/zklock/mine') }), 1, "$what: its znode is there");
	return;
}

my $file = $node_a->data_dir . '/pg_stat_tmp/zklock.session';
my $session = $node_a->status('session_id');
is($a1->query(acquire('/mine')), 't', 'a lock of the original');
is(sprintf('%04o', (stat $file)[2] & 07777), '0600', 'the session file is private');

$node_a->backup('base');
my $node_c = ZklockNode->new('base');
$node_c->init_from_backup($node_a, 'base');
ok(!-e $node_c->data_dir . '/pg_stat_tmp/zklock.session', 'a base backup leaves the session file out');
$node_c->start;
is_left_alone($node_c, $session, 'base backup');
$node_c->stop('immediate');

# A copy that includes the session file.
$node_a->safe_psql('postgres', 'CHECKPOINT');
$node_c = plain_copy($node_a, 'plain');
is(slurp_file($node_c->data_dir . '/pg_stat_tmp/zklock.session'), slurp_file($file),
	'a plain copy has the session file');
$node_c->start;
is_left_alone($node_c, $session, 'plain copy');
isnt(slurp_file($node_c->data_dir . '/pg_stat_tmp/zklock.session'), slurp_file($file),
	'plain copy: now it has another');
like(slurp_file($node_c->logfile), qr/ignoring file.*belongs to another server/,
	'plain copy: the log says why');

# The copy crashes and starts again: it closes its own old session, and no other.
my $own = $node_c->status('session_id');
my $on_copy = $node_c->backend;
$on_copy->query(acquire('/of the copy'));
$node_c->stop('immediate');
eval { $on_copy->quit };
is(scalar(@{ $zk->children('/zklock/of the copy') }), 1, 'crashed copy: its lock is still there');
$node_c->start;
is(scalar(@{ $zk->wait_for_children('/zklock/of the copy', 0, 20) }), 0,
	'crashed copy: freed when it starts again');
is_left_alone($node_c, $session, 'crashed copy');
isnt($node_c->status('session_id'), $own, 'crashed copy: has a new session');
$node_c->stop;

# A copy of the files that a crash left behind, started before the original is.
my $znode = '/zklock/mine/' . $zk->children('/zklock/mine')->[0];
$node_a->stop('immediate');
eval { $_->quit } foreach $a1, $a2;
$node_c = plain_copy($node_a, 'of_crashed');
$node_c->start;
$node_c->wait_until_connected;
ok($zk->exists($znode), 'copy of a crashed server: leaves the session of the original alone');
is($node_c->safe_psql('postgres', try('/mine')), 'f', 'copy of a crashed server: is excluded');
$node_a->start;
is($zk->wait_for_gone($znode, 20), 1, 'the original starts again: its old locks are free at once');
$node_a->wait_until_connected;
like(slurp_file($node_a->logfile), qr/closed the ZooKeeper session that an earlier run of this server left behind/,
	'and the log says so');
is($node_c->status('expirations'), '0', 'the session of the copy goes on');
is($node_c->safe_psql('postgres', acquire('/mine')), 't', 'and can have the lock');

$node_c->stop;
$node_a->stop;
ok(!-e $file, 'no session file is left after a clean stop');
is_deeply([ grep { /lock-/ } @{ $zk->tree('/zklock') } ], [], 'no znode is left');

done_testing();
