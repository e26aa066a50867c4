
# The read-write lock on two and three servers: tickets, sharing, downgrade, fairness.

use strict;
use warnings;

use Time::HiRes qw(time);

use History;
use ZklockTest;

my $zk = ZooKeeper->new;
my %settings = (
	'zklock.session_timeout' => '20s',
	'zklock.connection_timeout' => '60s',
	'zklock.linger' => 0,
	'zklock.tenure' => '1h');
my $node_a = ZklockNode->started('a', $zk, %settings);
my $node_b = ZklockNode->started('b', $zk, %settings);
my $node_c = ZklockNode->started('c', $zk, %settings);
my ($a1, $a2, $a3, $b1, $b2, $c1) =
  map { $_->backend } $node_a, $node_a, $node_a, $node_b, $node_b, $node_c;

sub rd { my ($path, $timeout) = @_; return "SELECT zk_read_lock_acquire('$path'" . (defined $timeout ? ", '$timeout')" : ')'); }
sub wr { my ($path, $timeout) = @_; return "SELECT zk_write_lock_acquire('$path'" . (defined $timeout ? ", '$timeout')" : ')'); }
sub unrd { my ($path) = @_; return "SELECT zk_read_lock_release('$path')"; }
sub unwr { my ($path) = @_; return "SELECT zk_write_lock_release('$path')"; }

# The queue in ZooKeeper, as "WRIT READ".
sub queue
{
	my ($path) = @_;
	return join ' ', map { /-__(READ|WRIT)__\d{10}$/ ? $1 : $_ }
	  sort { substr($a, -10) cmp substr($b, -10) } @{ $zk->children("/zklock$path") };
}

sub wait_for_queue
{
	my ($path, $wanted) = @_;
	$zk->wait_until(sub { queue($path) eq $wanted }, sub { "the queue of $path to be $wanted, and not " . queue($path) });
	is(queue($path), $wanted, "$path: the queue is " . ($wanted || 'empty'));
	return;
}

sub wait_until_clean
{
	my ($path) = @_;
	$zk->wait_for_children("/zklock$path", 0);
	$_->wait_until_clean($path) foreach $node_a, $node_b, $node_c;
	return;
}

# --- readers share, writers do not ---

$a1->query(rd('/share'));
my $tickets = $node_a->status('tickets');
$_->query(rd('/share')) foreach $a2, $a3, $a3;
is($node_a->status('tickets'), $tickets, 'readers of one server share its ticket');
is(queue('/share'), 'READ', 'which is one znode');
$_->query(rd('/share')) foreach $b1, $c1;
is(queue('/share'), 'READ READ READ', 'readers of three servers hold it together');
is($b2->query(wr('/share', '0')), 'f', 'a writer does not get it by a try');
is($b2->query(wr('/share', '300ms')), 'f', 'nor in time, beside a local reader');
$b2->send(wr('/share'));
$node_b->wait_for_waiter('/share', 1);
$b1->query(unrd('/share'));
wait_for_queue('/share', 'READ READ WRIT');
$c1->query(unrd('/share'));
$_->query(unrd('/share')) foreach $a1, $a2, $a3;
is($node_b->safe_psql('postgres', q{SELECT ticket FROM zk_locks WHERE path = '/share'}), 'queued',
	'the writer waits for the last reader');
ok(!$b2->is_done, 'which has acquired twice');
$a3->query(unrd('/share'));
is($b2->answer, 't', 'and then has the lock');
is($a1->query(rd('/share', '0')), 'f', 'no reader has it beside the writer');
is($c1->query(wr('/share', '0')), 'f', 'and no other writer');
is($a1->query(rd('/share', '300ms')), 'f', 'a reader waits in vain');
$b2->query(unwr('/share'));
wait_until_clean('/share');

# --- first come, first served: W, then R and W of others ---

$a1->query(wr('/fifo'));
$b1->send(rd('/fifo'));
wait_for_queue('/fifo', 'WRIT READ');
$c1->send(wr('/fifo'));
wait_for_queue('/fifo', 'WRIT READ WRIT');
$a1->query(unwr('/fifo'));
is($b1->answer, 't', 'the reader is next');
$node_c->wait_for_ticket('/fifo', 'queued');
ok(!$c1->is_done, 'the writer behind it waits');
$a1->send(rd('/fifo'));
wait_for_queue('/fifo', 'READ WRIT READ');
$node_a->wait_for_ticket('/fifo', 'queued');
ok(!$a1->is_done, 'a reader behind the writer waits for it');
$b1->query(unrd('/fifo'));
is($c1->answer, 't', 'the writer has it');
$c1->query(unwr('/fifo'));
is($a1->answer, 't', 'then the last reader');
$a1->query(unrd('/fifo'));
wait_until_clean('/fifo');

# --- the ticket of a writer serves local readers, until another client queues ---

$a1->query(wr('/serves'));
my $token = $a1->query(token('/serves'));
$a2->send(rd('/serves'));
$node_a->wait_for_waiter('/serves', 1);
$a1->query(unwr('/serves'));
is($a2->answer, 't', 'a local reader comes after the writer');
is(queue('/serves'), 'WRIT', 'with the ticket of the writer');
cmp_ok($a2->query(token('/serves')), '>', $token, 'and a greater token');
$token = $a2->query(token('/serves'));
my ($number) = $zk->children('/zklock/serves')->[0] =~ /(\d{10})$/;
$b1->send(rd('/serves'));
is($b1->answer, 't', 'a reader of another server makes it a reader\'s');
is(queue('/serves'), 'READ READ', 'now both are readers');
my ($first) = sort { substr($a, -10) cmp substr($b, -10) } @{ $zk->children('/zklock/serves') };
is(substr($first, -10), $number, 'the number of the writer is kept');
is($a2->query(token('/serves')), $token, 'and so is the token');
$a1->query(rd('/serves'));
cmp_ok($a1->query(token('/serves')), '>', $token, 'further readers get greater ones');
my @tokens = map { $_->query(token('/serves')) } $a1, $a2, $b1;
$c1->send(wr('/serves'));
wait_for_queue('/serves', 'READ READ WRIT');
$_->query(unrd('/serves')) foreach $a1, $a2, $b1;
is($c1->answer, 't', 'a writer after them');
my $writers = $c1->query(token('/serves'));
cmp_ok($writers, '>', $_, 'has a greater token than each reader') foreach @tokens;
$c1->query(unwr('/serves'));
wait_until_clean('/serves');

# --- the downgrade of a claim, while others wait ---

foreach my $how ('release', 'COMMIT')
{
	my $path = "/downgrade/$how";
	$a1->query($how eq 'COMMIT' ? "BEGIN; SELECT zk_xact_write_lock_acquire('$path')" : wr($path));
	$a1->query(rd($path));
	$token = $a1->query(token($path));
	$b1->send(wr($path));
	wait_for_queue($path, 'WRIT WRIT');
	$c1->send(rd($path));
	wait_for_queue($path, 'WRIT WRIT READ');
	$a2->send(rd($path));
	$node_a->wait_for_waiter($path, 1);
	$a1->query($how eq 'COMMIT' ? 'COMMIT' : unwr($path));
	wait_for_queue($path, 'READ WRIT READ');
	is($a2->answer, 't', "$how: within the tenure the local reader joins");
	$node_b->wait_for_ticket($path, 'queued');
	ok(!$b1->is_done, "$how: the writer goes on waiting");
	ok(!$c1->is_done, "$how: and the reader behind it");
	is($a1->query(held($path)), 't', "$how: the lock is still held");
	is($a1->query(token($path)), $token, "$how: with the same token");
	$_->query(unrd($path)) foreach $a1, $a2;
	is($b1->answer, 't', "$how: the writer is next");
	cmp_ok($b1->query(token($path)), '>', $token, "$how: its token is greater");
	$b1->query(unwr($path));
	is($c1->answer, 't', "$how: then the reader");
	$c1->query(unrd($path));
	wait_until_clean($path);
}

# The server downgrades at once, so that no later client has to wait for that.
$a1->query($_) foreach wr('/eager'), rd('/eager'), unwr('/eager');
wait_for_queue('/eager', 'READ');
is($b1->query(rd('/eager', '0')), 't', 'a try of a reader elsewhere succeeds at once');
is($b2->query(wr('/eager', '0')), 'f', 'that of a writer fails');
$_->query(unrd('/eager')) foreach $a1, $b1;
wait_until_clean('/eager');

# --- mode of a queued ticket ---

$a1->query(wr('/mode'));
$b1->send(wr('/mode'));
wait_for_queue('/mode', 'WRIT WRIT');
$b2->send(rd('/mode'));
$node_b->wait_for_waiter('/mode', 2);
$node_b->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $b1->pid . ')');
is($b1->result->{errcode}, '57014', 'a queued writer gives up');
wait_for_queue('/mode', 'WRIT READ');
$a1->query(unwr('/mode'));
is($b2->answer, 't', 'the local reader behind it has a ticket of its own kind');
$a1->query(rd('/mode'));
pass('which it shares');
$_->query(unrd('/mode')) foreach $a1, $b2;
wait_until_clean('/mode');

# A local writer waits behind local readers and a remote reader; it gives up.
$_->query(rd('/gives-up')) foreach $a1, $b1;
$b2->send(wr('/gives-up'));
$node_b->wait_for_waiter('/gives-up', 1);
$b1->query(unrd('/gives-up'));
wait_for_queue('/gives-up', 'READ WRIT');
$b1->send(rd('/gives-up'));
$node_b->wait_for_waiter('/gives-up', 2);
ok(!$b1->is_done, 'a reader queues behind the local writer');
$node_b->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $b2->pid . ')');
is($b2->result->{errcode}, '57014', 'the writer is cancelled');
is($b1->answer, 't', 'and the reader shares at once with the other server');
wait_for_queue('/gives-up', 'READ READ');
$_->query(unrd('/gives-up')) foreach $a1, $b1;
wait_until_clean('/gives-up');

# Waiting readers that are cancelled leave nothing.
$a1->query(wr('/cancel'));
$_->send(rd('/cancel')) foreach $b1, $b2;
$node_b->wait_for_waiter('/cancel', 2);
wait_for_queue('/cancel', 'WRIT READ');
$node_b->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $b1->pid . ')');
is($b1->result->{errcode}, '57014', 'one of two readers is cancelled');
is(queue('/cancel'), 'WRIT READ', 'the other keeps the ticket');
$node_b->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $b2->pid . ')');
is($b2->result->{errcode}, '57014', 'the other, too');
wait_for_queue('/cancel', 'WRIT');
$node_b->wait_until_clean('/cancel');
$a1->query(unwr('/cancel'));
wait_until_clean('/cancel');

# --- fairness ---

# If the server stands still for a whole tenure, no reader joins in it.  Then there is another one.
my $joined = 0;
foreach my $turn (0 .. 5)
{
	my $tenure = $turn ? '300ms' : '0';
	$node_a->set('zklock.tenure', $tenure);
	my $path = "/fair/$turn";
	my ($first_reader, $second) = map { $node_a->backend } 1, 2;
	$first_reader->query(rd($path));
	$b1->send(wr($path));
	wait_for_queue($path, 'READ WRIT');

	# (A tenure begins before the server knows of the writer.)
	$node_a->wait_until_contended($path) if $tenure eq '0';

	# Each reader hands over to the other, so that there is always one.
	my $rounds = 0;
	my ($x, $y) = ($first_reader, $second);
	my $deadline = time + 60;
	until ($b1->is_done || time > $deadline)
	{
		if ($y->query(rd($path, '200ms')) eq 't')
		{
			$x->query(unrd($path));
			($x, $y) = ($y, $x);
			$rounds++;
		}
		else
		{
			$x->query(unrd($path));
			last;
		}
	}
	is($b1->answer, 't', "tenure $tenure: a stream of readers does not starve a writer");
	is($rounds, 0, 'tenure 0: no reader joins while a writer waits') if $tenure eq '0';
	$joined += $rounds;
	is($y->query(rd($path, '0')), 'f', "tenure $tenure: the writer is alone");
	$b1->query(unwr($path));
	$_->quit foreach $first_reader, $second;
	wait_until_clean($path);
	last if $joined;
}
cmp_ok($joined, '>', 0, 'with a tenure they do, for that time');

# Local writers and a remote reader.
$node_a->set('zklock.tenure', '0');
$a1->query(wr('/fair2'));
$b1->send(rd('/fair2'));
wait_for_queue('/fair2', 'WRIT READ');
$node_a->wait_until_contended('/fair2');
$a2->send(wr('/fair2'));
$node_a->wait_for_waiter('/fair2', 1);
$a1->query(unwr('/fair2'));
is($b1->answer, 't', 'writers do not starve a reader');
wait_for_queue('/fair2', 'READ WRIT');
$b1->query(unrd('/fair2'));
is($a2->answer, 't', 'nor the reader them');
$a2->query(unwr('/fair2'));
wait_until_clean('/fair2');
$node_a->set('zklock.tenure', '1h');

# --- linger: a read ticket that came back, and a writer ---

$node_a->set('zklock.linger', '1h');
my $l = $node_a->backend;
foreach my $i (1 .. 2)
{
	$l->query(rd('/linger'));
	$l->query(unrd('/linger'));
}
$node_a->wait_for_ticket('/linger', 'lingering');
is(queue('/linger'), 'READ', 'a read ticket lingers');
$tickets = $node_a->status('tickets');
$l->query(rd('/linger'));
is($node_a->status('tickets'), $tickets, 'and serves the next reader');
$l->query(unrd('/linger'));
is($l->query(wr('/linger', '1min')), 't', 'a writer replaces it');
is(queue('/linger'), 'WRIT', 'by one of its own');
$l->query(unwr('/linger'));
is($b1->query(wr('/linger', '1min')), 't', 'another server has it at once');
$b1->query(unwr('/linger'));
wait_until_clean('/linger');
$l->quit;
$node_a->set('zklock.linger', '0');

# --- kinds, across servers ---

foreach (
	[ 'zk_lock_acquire(%s)', 'zk_read_lock_acquire(%s)' ],
	[ 'zk_lock_acquire(%s)', q{zk_write_lock_acquire(%s, '0')} ],
	[ 'zk_read_lock_acquire(%s)', 'zk_lock_acquire(%s)' ],
	[ 'zk_write_lock_acquire(%s)', q{zk_lock_acquire(%s, '1min')} ],
	[ 'zk_semaphore_acquire(%s, 2)', 'zk_read_lock_acquire(%s)' ],
	[ 'zk_semaphore_acquire(%s, 2)', 'zk_lock_acquire(%s)' ],
	[ 'zk_read_lock_acquire(%s)', 'zk_semaphore_acquire(%s, 2)' ],
	[ 'zk_lock_acquire(%s)', q{zk_semaphore_acquire(%s, 1, '0')} ])
{
	my ($has, $wants) = map { sprintf $_, q{'/kind'} } @$_;
	$a1->query("SELECT $has");
	is($b1->errcode("SELECT $wants"), 'ZK003', "$wants while another server has $has");
	$node_b->wait_until_clean('/kind');
	$a1->query('SELECT zk_lock_release_all()');
	$zk->wait_until(sub { !grep { /[-_]\d{10}$/ } @{ $zk->tree('/zklock/kind') } }, 'no user of the path is left');
	is($b1->query("SELECT $wants"), 't', 'but not afterwards');
	$b1->query('SELECT zk_lock_release_all()');
	$zk->wait_until(sub { !grep { /[-_]\d{10}$/ } @{ $zk->tree('/zklock/kind') } }, 'no user of the path is left');
	$_->wait_until_clean('/kind') foreach $node_a, $node_b;
}

# --- faults ---

# The session expires: all readers of that server have lost the lock, those of other servers have
# not.
$_->query(rd('/expires')) foreach $a1, $a2, $b1;
$c1->send(wr('/expires'));
wait_for_queue('/expires', 'READ READ WRIT');
$node_a->expire_session($zk, by_hand => 1);
is($_->query(held('/expires')), 'f', 'the session expired: lost') foreach $a1, $a2;
is($_->errcode(token('/expires')), 'ZK001', 'and told') foreach $a1, $a2;
is($b1->query(held('/expires')), 't', 'the reader of another server goes on');
ok(!$c1->is_done, 'and keeps the writer waiting');
is($a3->query(rd('/expires', '0')), 'f', 'a new reader waits behind the writer');
$b1->query(unrd('/expires'));
is($c1->answer, 't', 'the writer has it');
is($_->run(unrd('/expires'))->{out}, 'f', 'release of the lost one') foreach $a1, $a2;
$c1->query(unwr('/expires'));
wait_until_clean('/expires');

# The worker ends while readers hold the lock, and while one is being downgraded.
$a1->query($_) foreach wr('/worker'), rd('/worker');
$_->query(rd('/worker2')) foreach $a1, $a2, $b1;
my $worker = $node_a->worker_pid;
$token = $a1->query(token('/worker'));
kill 'TERM', $worker;
$node_a->wait_until("SELECT worker_pid <> $worker FROM zk_status");
is($a1->query(unwr('/worker')), 't', 'while there is no connection, a writer becomes a reader');
$node_a->wait_until_connected;
wait_for_queue('/worker', 'READ');
is($_->query(held('/worker2')), 't', 'a new worker: readers still hold') foreach $a1, $a2, $b1;
is($a1->query(token('/worker')), $token, 'and so does the former writer');
is($b1->query(rd('/worker', '1min')), 't', 'the downgrade was carried out');
is($b2->query(wr('/worker2', '0')), 'f', 'writers are kept out');
$_->query('SELECT zk_lock_release_all()') foreach $a1, $a2, $b1;
wait_until_clean($_) foreach '/worker', '/worker2';

# A backend is killed, of several readers and as the last one.
my ($k1, $k2) = map { $node_a->backend } 1, 2;
$_->query(rd('/killed')) foreach $k1, $k2;
$b1->send(wr('/killed'));
wait_for_queue('/killed', 'READ WRIT');
$k1->kill_client;
$node_a->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $k1->pid . ')');
$node_a->wait_until(q{SELECT count(*) = 1 FROM zk_locks WHERE path = '/killed' AND claim = 'held'});
is(queue('/killed'), 'READ WRIT', 'one reader is killed: the other one holds');
is($k2->query(held('/killed')), 't', 'for certain');
$k2->kill_client;
$node_a->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $k2->pid . ')');
is($b1->answer, 't', 'both are killed: the writer has it');
$b1->query(unwr('/killed'));
wait_until_clean('/killed');

# --- a small storm ---

foreach ([ '100ms', '1s' ], [ '0', '0' ], [ '1h', '0' ])
{
	my ($tenure, $linger) = @$_;
	foreach my $node ($node_a, $node_b)
	{
		$node->configure('zklock.tenure' => $tenure, 'zklock.linger' => $linger);
		$node->reload;
	}
	$_->wait_until("SELECT current_setting('zklock.tenure') = '$tenure' AND current_setting('zklock.linger') = '$linger'")
	  foreach $a1, $b1;
	my $history = History->new;
	my $path = "/storm/$tenure";
	foreach my $node ($node_a, $node_b)
	{
		my $name = $node->name;
		$history->hammer_sql($node, "$name-r$_", rd($path), unrd($path), mode => 's', rounds => 20, hold_us => 1000) foreach 1, 2;
		$history->hammer_sql($node, "$name-w", wr($path), unwr($path), rounds => 10);
	}
	$history->wait_until(sub { $history->records >= 100 }, '100 rounds');
	$history->stop;
	is_deeply([ $history->problems ], [], "tenure $tenure, linger $linger: no reader or writer overlapped a writer");
	wait_until_clean($path) if $linger eq '0';
}

$_->quit foreach $a1, $a2, $a3, $b1, $b2, $c1;
foreach my $node ($node_a, $node_b, $node_c)
{
	$node->stop;
	is(() = slurp_file($node->logfile) =~ /(?:PANIC|TRAP|terminated by signal|you don't own)/g, 0, $node->name . ': a quiet log');
}
is_deeply([ grep { /[-_]\d{10}$/ } @{ $zk->tree('/zklock') } ], [], 'nothing is left in the end');

done_testing();
