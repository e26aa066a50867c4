
# The semaphore together with services on Curator, InterProcessSemaphoreV2 and
# InterProcessSemaphoreMutex: both directions, several leases at once, the order that the
# inner mutex gives, ends of all kinds, and znodes that others delete.

use strict;
use warnings;

use Contender;
use InteropPeer;
use ZklockTest;

my $zk = ZooKeeper->new;
my $curator = InteropPeer->curator($zk, session_timeout => 8);
my $victim = InteropPeer->curator($zk, session_timeout => 6);
my %settings = ('zklock.tenure' => 0, 'zklock.linger' => 0, 'zklock.connection_timeout' => '1min');
my %node = map { $_ => ZklockNode->started($_, $zk, %settings) } 'a', 'b';
my %backend = map { my $name = $_; $name => node_of($name)->backend } qw(a1 a2 a3 b1 b2);

sub node_of { my ($name) = @_; return $node{ substr $name, 0, 1 }; }
sub renew { my ($name) = @_; $backend{$name} = node_of($name)->backend; return; }

# A contender for so many leases of n: a backend of zklock, or a session of Curator.
sub zklock
{
	my ($name, $n, $quantity) = @_;
	$quantity //= 1;
	return Contender->zklock($backend{$name}, node_of($name),
		acquire => sub { my ($path, $ms) = @_; return "SELECT zk_semaphore_acquire('$path', $n, " . (defined $ms ? "'$ms ms'" : 'NULL') . ", $quantity)"; },
		release => sub { "SELECT zk_semaphore_release('$_[0]', $quantity)" });
}

sub curator { my ($name, $n, $quantity) = @_; return Contender->foreign($curator->actor($name), "semaphore=$n", $quantity // 1); }
sub semmutex { my ($name) = @_; return Contender->foreign($curator->actor($name), 'semmutex'); }
sub who { my ($name, @what) = @_; return $name =~ /^c/ ? curator($name, @what) : zklock($name, @what); }

# How many znodes there are: "LEASES/LOCKS", for each lease one and for each client that waits for
# the inner mutex or has it.  zklock answers before its znodes are gone.
sub nodes { my ($path) = @_; return join '/', map { scalar @{ $zk->children("/zklock$path/$_") } } 'leases', 'locks'; }

sub wait_for_nodes
{
	my ($path, $expected, $what) = @_;
	my $is = '';
	eval { $zk->wait_until(sub { ($is = nodes($path)) eq $expected }, $what) };
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($is, $expected, "$what: znodes");
}

# Be the first to wait, with the inner mutex in hand and a znode for each lease.
sub wait_first
{
	my ($path, $contender, $leases, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$contender->send_acquire($path);
	wait_for_nodes($path, "$leases/1", $what);
	return wait_on($what, $contender);
}

# Queue for the inner mutex, which another client has.
sub queue { my ($path, $contender) = @_; return $contender->queue_in($zk, "$path/locks", $path); }

sub have_it
{
	my ($what, @contenders) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(join(' ', map { $_->answer } @contenders), join(' ', map { 't' } @contenders), $what);
}

sub wait_on
{
	my ($what, @contenders) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(scalar(grep { $_->is_done } @contenders), 0, "$what: no lease");
}

sub cancel { my ($name) = @_; return node_of($name)->safe_psql('postgres', 'SELECT pg_cancel_backend(' . $backend{$name}->pid . ')'); }
sub terminate { my ($name) = @_; return node_of($name)->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $backend{$name}->pid . ')'); }
sub is_held { my ($name, $path) = @_; return $backend{$name}->query("SELECT zk_lock_is_held('$path')"); }
sub lease_nodes { my ($path) = @_; return map { "/zklock$path/leases/$_" } @{ $zk->children("/zklock$path/leases") }; }

# A statement that runs until it is cancelled.
sub send_sleep
{
	my ($name) = @_;
	$backend{$name}->send('SELECT pg_sleep(600)');
	return node_of($name)->wait_until(q{SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = } . $backend{$name}->pid);
}

# --- both directions ---

foreach (
	[ 'semaphore of one', 1, [ map { zklock($_, 1) } 'a1', 'b1' ], [ map { curator($_, 1) } 'c1', 'c2' ] ],
	[ 'SemaphoreMutex', 1, [ map { zklock($_, 1) } 'a1', 'b1' ], [ map { semmutex($_) } 'c1', 'c2' ] ],
	[ 'all of two', 2, [ map { zklock($_, 2, 2) } 'a1', 'b1' ], [ map { curator($_, 2, 2) } 'c1', 'c2' ] ],
	[ 'all of three', 3, [ map { zklock($_, 3, 3) } 'a1', 'b1' ], [ map { curator($_, 3, 3) } 'c1', 'c2' ] ])
{
	my ($what, $n, $ours, $theirs) = @$_;
	my ($a, $b) = @$ours;
	my ($c, $d) = @$theirs;
	my $path = '/both_' . $what =~ s/ /_/gr;

	is($c->acquire($path), 't', "$what: Curator has it");
	wait_for_nodes($path, "$n/0", "$what: Curator has it");
	is($a->try($path), 'f', "$what: Curator has it: a try of zklock");
	is($a->acquire($path, 100), 'f', "$what: Curator has it: zklock with a timeout");
	wait_for_nodes($path, "$n/0", "$what: zklock has left nothing");
	wait_first($path, $a, 2 * $n, "$what: Curator has it: zklock waits");
	queue($path, $d);
	$c->release($path);
	have_it("$what: Curator has released: zklock has it", $a);

	# Curator waits with the first of its leases in hand.
	wait_for_nodes($path, ($n + 1) . '/1', "$what: zklock has it: Curator waits");
	wait_on("$what: zklock has it: Curator waits", $d);
	is($a->release($path), 't', "$what: zklock has released");
	have_it("$what: zklock has released: Curator has it", $d);
	wait_for_nodes($path, "$n/0", "$what: zklock has released: Curator has it");
	wait_first($path, $b, 2 * $n, "$what: Curator has it: the other server waits");
	$d->release($path);
	have_it("$what: then the other server", $b);
	wait_for_nodes($path, "$n/0", "$what: the other server has it");
	is($c->try($path), 'f', "$what: the other server has it: a try of Curator");
	is($c->acquire($path, 100), 'f', "$what: the other server has it: Curator with a timeout");
	wait_for_nodes($path, "$n/0", "$what: Curator has left nothing");
	$b->release($path);
	wait_for_nodes($path, '0/0', "$what: no client has it");
}

# --- never more than there are ---

{
	my @all = map { who($_, 3) } qw(a1 c1 b1 a2 c2 b2);
	is($_->acquire('/max', 5000), 't', 'one of three') foreach @all[ 0 .. 2 ];
	wait_for_nodes('/max', '3/0', 'three of three');
	foreach my $i (3 .. 5)
	{
		is($all[$i]->try('/max'), 'f', 'not a fourth: a try');
		is($all[$i]->acquire('/max', 100), 'f', 'not a fourth: with a timeout');
		wait_for_nodes('/max', '3/0', 'three of three');
	}
	is(scalar(split / /, $curator->actor('c3')->query('nodes semaphore=3 /zklock/max')), 3, 'Curator sees three');
	is(node_of('a')->safe_psql('postgres', q{SELECT count(*), bool_and(granted), min(kind), min(mode) FROM zk_locks WHERE path = '/max'}),
		'1|t|semaphore|lease', 'a server sees its own');

	# Each release lets one waiter in.
	wait_first('/max', $all[3], 4, 'the fourth waits');
	foreach my $i (4, 5)
	{
		queue('/max', $all[$i]);
	}
	foreach my $i (3 .. 5)
	{
		wait_on('three have it', @all[ $i .. 5 ]);
		is($all[ $i - 3 ]->release('/max'), 't', 'one is released');
		have_it('the next has it', $all[$i]);
	}
	wait_for_nodes('/max', '3/0', 'three of three');
	$_->release('/max') foreach @all[ 3 .. 5 ];
	wait_for_nodes('/max', '0/0', 'all are released');
}

# A session that acquires again holds more leases.
{
	my ($a, $c) = (zklock('a1', 3), curator('c1', 3));
	is($a->acquire('/again'), 't', 'one, and again') foreach 1 .. 2;
	is($c->acquire('/again', 5000), 't', 'the third is for Curator');
	wait_for_nodes('/again', '3/0', 'three');
	is($a->try('/again'), 'f', 'there is no fourth');
	wait_for_nodes('/again', '3/0', 'three');
	node_of('a')->wait_until(q{SELECT count(*) = 2 FROM zk_locks WHERE path = '/again'});
	pass('two rows');
	$a->release('/again');
	is($c->acquire('/again', 5000), 't', 'one is back');
	is($a->try('/again'), 'f', 'now Curator has two');
	is(is_held('a1', '/again'), 't', 'zklock holds one');
	$_->release('/again') foreach $a, $c, $c;
	wait_for_nodes('/again', '0/0', 'all are released');
}

# --- several at once ---

# zklock takes all or nothing.
{
	my ($a, $c, $d) = (zklock('a1', 3, 2), curator('c1', 3, 2), curator('c2', 3));
	is($c->acquire('/several', 5000), 't', 'Curator has two of three');
	is($a->try('/several'), 'f', 'zklock tries two');
	is($a->acquire('/several', 100), 'f', 'zklock wants two');
	wait_for_nodes('/several', '2/0', 'zklock has taken none');
	is($d->try('/several'), 't', 'the third is there for others');
	$d->release('/several');
	wait_first('/several', $a, 4, 'zklock waits for two');
	queue('/several', $d);
	wait_on('there is one, but zklock is the first', $a, $d);
	is($curator->actor('c1')->query('release semaphore=3 /zklock/several 1'), 't', 'Curator gives one back');
	have_it('zklock has two', $a);
	wait_for_nodes('/several', '4/1', 'the client behind it waits');
	wait_on('the client behind it', $d);
	is($backend{a1}->query(q{SELECT zk_semaphore_release('/several')}), 't', 'zklock gives one back');
	have_it('the client behind it has it', $d);
	is(is_held('a1', '/several'), 't', 'zklock holds one');
	wait_for_nodes('/several', '3/0', 'three');
	is($backend{a1}->query(q{SELECT zk_semaphore_release('/several', 2)}), 'f', 'it cannot give back two');
	is(nodes('/several'), '3/0', 'and has not given back one');
	$backend{a1}->query(q{SELECT zk_semaphore_release('/several')});
	$d->release('/several');
	$curator->actor('c1')->query('release semaphore=3 /zklock/several 1');
	wait_for_nodes('/several', '0/0', 'all are released');
}

# Curator takes leases one by one and keeps those that it has, so that it and others can wait for
# each other, until its timeout passes.
{
	my ($a, $b, $c) = (zklock('a1', 3), zklock('b1', 3, 3), curator('c1', 3, 3));
	is($a->acquire('/one_by_one'), 't', 'zklock has one of three');
	$c->send_acquire('/one_by_one', 3000);
	wait_for_nodes('/one_by_one', '4/1', 'Curator has two, and waits for the third');
	queue('/one_by_one', $b);
	is($c->answer, 'f', 'its timeout passes');
	wait_for_nodes('/one_by_one', '4/1', 'it has given all back, and zklock waits for three');
	wait_on('zklock waits for three', $b);
	is(zklock('a2', 3)->try('/one_by_one'), 'f', 'there are two, but another client stands before');
	$a->release('/one_by_one');
	have_it('zklock has three', $b);
	is($c->acquire('/one_by_one', 100), 'f', 'Curator has none');
	wait_for_nodes('/one_by_one', '3/0', 'three');
	$b->release('/one_by_one');
	is($c->acquire('/one_by_one', 5000), 't', 'Curator has three');
	is($b->try('/one_by_one'), 'f', 'zklock has none');
	$c->release('/one_by_one');
	wait_for_nodes('/one_by_one', '0/0', 'all are released');

	my $d = curator('c2', 3, 2);
	is($d->acquire('/circle', 5000), 't', 'Curator has two of three');
	$c->send_acquire('/circle', 3000);
	wait_for_nodes('/circle', '4/1', 'another of Curator has the third, and waits');
	queue('/circle', $b);
	$d->release('/circle');
	wait_for_nodes('/circle', '5/2', 'it has two now, and zklock waits for three');
	wait_on('it has two now, and zklock waits for three', $b, $c);
	is($c->answer, 'f', 'its timeout passes');
	have_it('zklock has all three', $b);
	$b->release('/circle');
	wait_for_nodes('/circle', '0/0', 'all are released');
}

# --- the order, which the inner mutex gives ---

sub run_queue
{
	my ($path, @names) = @_;
	my %contender = map { $_ => who($_, 1) } @names;
	my $holder = shift @names;

	is($contender{$holder}->acquire($path), 't', "$path: $holder");
	wait_for_nodes($path, '1/0', "$path: $holder has it");
	wait_first($path, $contender{ $names[0] }, 2, "$path: $names[0] waits");
	foreach my $name (@names[ 1 .. $#names ])
	{
		queue($path, $contender{$name});
	}
	while (@names)
	{
		# The next client to get a lease has the inner mutex, and a znode that is one too many.
		wait_for_nodes($path, '2/' . @names, "$path: $holder has it");
		wait_on("$path: $holder has it", map { $contender{$_} } @names);
		$contender{$holder}->release($path);
		$holder = shift @names;
		have_it("$path: $holder is next", $contender{$holder});
	}
	$contender{$holder}->release($path);
	wait_for_nodes($path, '0/0', "$path: no client is left");
	return;
}

run_queue('/order1', qw(c1 a1 c2 b1 c3));
run_queue('/order2', qw(a1 c1 b1 c2 c3));
run_queue('/order3', qw(b1 a1 c1 c2));
run_queue('/order4', qw(c1 c2 a1 b1 c3));

# The owner of the inner mutex keeps others waiting, though there are leases.
{
	my ($a, $c) = (zklock('a1', 2), curator('c1', 2));
	my $mutex = Contender->foreign($curator->actor('c2'), 'mutex');
	$mutex->acquire('/inner/locks');
	queue('/inner', $a);
	wait_on('Curator has the inner mutex: zklock', $a);
	is(nodes('/inner'), '0/2', 'Curator has the inner mutex: zklock has not asked for a lease');
	is(zklock('b1', 2)->acquire('/inner', 100), 'f', 'Curator has the inner mutex: zklock with a timeout');
	is(zklock('b1', 2)->try('/inner'), 't', 'Curator has the inner mutex: a try of zklock does not need it');
	zklock('b1', 2)->release('/inner');
	$mutex->release('/inner/locks');
	have_it('the inner mutex is free: zklock has a lease', $a);
	wait_for_nodes('/inner', '1/0', 'zklock has a lease');

	is($backend{b1}->query(q{SELECT zk_lock_acquire('/inner/locks')}), 't', 'zklock has the inner mutex');
	is($c->acquire('/inner', 100), 'f', 'zklock has the inner mutex: Curator');
	queue('/inner', $c);
	wait_on('zklock has the inner mutex: Curator', $c);
	$backend{b1}->query(q{SELECT zk_lock_release('/inner/locks')});
	have_it('the inner mutex is free: Curator has a lease', $c);
	wait_for_nodes('/inner', '2/0', 'both have one');
	$_->release('/inner') foreach $a, $c;
	wait_for_nodes('/inner', '0/0', 'all are released');
}

# A try does not disturb the waiter.
{
	my ($a, $c) = (zklock('a1', 1), curator('c1', 1));
	my $b = zklock('b1', 1);
	$b->acquire('/try');
	wait_for_nodes('/try', '1/0', 'held');
	wait_first('/try', $c, 2, 'Curator waits');
	is($a->try('/try'), 'f', 'Curator waits: a try of zklock') foreach 1 .. 20;
	is($backend{b1}->query(q{SELECT zk_semaphore_acquire('/try', 1, '0')}), 'f', 'Curator waits: a try of the holder');
	wait_for_nodes('/try', '2/1', 'Curator waits');
	wait_on('Curator waits', $c);
	$b->release('/try');
	have_it('Curator has it', $c);
	$c->release('/try');
	wait_for_nodes('/try', '0/0', 'all are released');
}

# --- a client gives up ---

# The holder's lease has to stay, and nothing else.
{
	my $c = curator('c1', 2);
	my @points = (
		[ 'while it waits for a lease', 1, sub { wait_first('/cancel', $_[0], 3, $_[1]) } ],
		[ 'while it waits for two, and there is one', 2, sub { wait_first('/cancel', $_[0], 3, $_[1]) } ]);

	$c->acquire('/cancel');
	foreach (@points)
	{
		my ($what, $quantity, $begin) = @$_;
		my $d = curator('c2', 2);
		$d->acquire('/cancel', 5000) if $quantity == 1;
		foreach my $name ('a1', 'c3')
		{
			my $a = $name eq 'c3' ? curator($name, 2, $quantity) : zklock($name, 2, $quantity);
			$begin->($a, "$name, $what");
			$name eq 'c3' ? $a->party->cancel : cancel($name);
			is($a->result->{errcode}, $name eq 'c3' ? 'InterruptedException' : '57014', "$name is cancelled $what");
			wait_for_nodes('/cancel', ($quantity == 1 ? 2 : 1) . '/0', "$name is cancelled $what");
		}
		$d->release('/cancel') if $quantity == 1;
	}

	# A client that waits behind others for the inner mutex gives up, and the others go on.
	my ($first, $behind) = (curator('c2', 1 + 1, 2), curator('c3', 2));
	wait_first('/cancel', $first, 3, 'Curator waits for two');
	queue('/cancel', zklock('a1', 2));
	queue('/cancel', $behind);
	cancel('a1');
	is($backend{a1}->result->{errcode}, '57014', 'cancelled while it waits for the inner mutex');
	wait_for_nodes('/cancel', '3/2', 'cancelled while it waits for the inner mutex');
	queue('/cancel', zklock('a1', 2));
	terminate('a1');
	wait_for_nodes('/cancel', '3/2', 'terminated while it waits for the inner mutex');
	renew('a1');
	is(zklock('a1', 2)->acquire('/cancel', 100), 'f', 'its timeout passes while it waits for the inner mutex');
	wait_for_nodes('/cancel', '3/2', 'its timeout passes while it waits for the inner mutex');
	wait_on('all others wait on', $first, $behind);
	$first->party->cancel;
	is($first->result->{errcode}, 'InterruptedException', 'Curator is interrupted');
	have_it('the client behind has the lease that is there', $behind);
	wait_for_nodes('/cancel', '2/0', 'two have one');

	# Clients give up in other ways.
	foreach (
		[ q{SET statement_timeout = '200ms'}, '57014' ],
		[ q{SET lock_timeout = '200ms'}, '55P03' ])
	{
		my ($set, $error) = @$_;
		$backend{a1}->query($set);
		is($backend{a1}->errcode(q{SELECT zk_semaphore_acquire('/cancel', 2)}), $error, "$set: an error");
		wait_for_nodes('/cancel', '2/0', $set);
		$backend{a1}->query('RESET ALL');
	}
	wait_first('/cancel', zklock('a1', 2, 2), 4, 'zklock waits for two');
	queue('/cancel', zklock('b1', 2));
	terminate('a1');
	renew('a1');
	wait_for_nodes('/cancel', '3/1', 'a waiter for a lease is terminated: the other server waits');
	wait_on('a waiter for a lease is terminated: the other server waits', zklock('b1', 2));
	$behind->release('/cancel');
	have_it('and has it then', zklock('b1', 2));
	zklock('b1', 2)->release('/cancel');

	# The cancel comes at any moment.
	$behind->acquire('/cancel', 5000);
	my %seen;
	foreach my $i (1 .. 30)
	{
		zklock('a1', 2, 1 + $i % 2)->send_acquire('/cancel');
		my $wanted = [qw(2/0 2/1 3/1 4/1)]->[ $i % 4 ];
		$zk->wait_until(
			sub {
				my $now = nodes('/cancel');
				cancel('a1') if $now ge $wanted || $seen{$i}++ > 20;
				return $backend{a1}->is_done;
			},
			'the cancelled statement');
		$backend{a1}->result->{errcode} eq '57014' or fail('cancelled at whatever moment');
	}
	wait_for_nodes('/cancel', '2/0', 'cancelled at any moments');

	# The cancel comes with the lease: the backend has it or not, and no other client has the lease
	# because of that.  It also has it if the cancel comes when the lease has been counted, as with
	# pg_advisory_lock().
	my %outcome;
	my $a = zklock('a1', 1);
	my $e = curator('c4', 1);
	foreach my $i (1 .. 20)
	{
		is($e->acquire('/race', 5000), 't', 'Curator has it');
		$a->send_acquire('/race');
		$zk->wait_until(sub { nodes('/race') eq '2/1' }, 'zklock to wait');
		$e->party->send('release semaphore=1 /zklock/race 1');
		cancel('a1');
		$e->party->answer;
		my $result = $a->result;
		my $has_it = is_held('a1', '/race') eq 't';
		ok($result->{out} eq 't' ? $has_it : $result->{errcode} eq '57014', 'cancelled as it is granted: it has it or not');
		wait_for_nodes('/race', $has_it ? '1/0' : '0/0', 'cancelled as it is granted');
		$a->release('/race') if $has_it;
		wait_for_nodes('/race', '0/0', 'released');
	}
	$_->release('/cancel') foreach $c, $behind;
	wait_for_nodes('/cancel', '0/0', 'all are released');
}

# --- a holder or a waiter ends ---

# Transactions and backends.
{
	my ($c, $d) = (curator('c1', 2, 2), curator('c2', 2));
	$backend{a1}->query(q{BEGIN; SELECT zk_xact_semaphore_acquire('/end', 2, NULL, 2)});
	wait_for_nodes('/end', '2/0', 'a transaction has two');
	$c->send_acquire('/end');
	wait_for_nodes('/end', '3/1', 'Curator waits');
	$backend{a1}->query('ROLLBACK');
	have_it('the transaction has ended: Curator has both', $c);
	$c->release('/end');

	zklock('a1', 2)->acquire('/end');
	zklock('a1', 2)->acquire('/end');
	wait_for_nodes('/end', '2/0', 'a backend has two');
	wait_first('/end', $d, 3, 'Curator waits');
	terminate('a1');
	have_it('the backend is terminated: Curator has it', $d);
	wait_for_nodes('/end', '1/0', 'the backend is terminated');
	renew('a1');
	$backend{a1}->query(q{SELECT zk_semaphore_acquire('/end', 2)});
	$backend{a1}->query('DISCARD ALL');
	wait_for_nodes('/end', '1/0', 'DISCARD ALL');
	$d->release('/end');
	wait_for_nodes('/end', '0/0', 'all are released');
}

# A service is killed that has leases and waits.
{
	my ($v1, $v2, $v3) = map { my $quantity = $_; Contender->foreign($victim->actor("v$_"), 'semaphore=3', $quantity == 1 ? 2 : 1) } 1 .. 3;
	my ($a, $b, $c) = (zklock('a1', 3, 2), zklock('b1', 3), curator('c1', 3));
	my @sessions = map { $_->party->session } $v1, $v2, $v3;
	$c->acquire('/kill');
	$v1->acquire('/kill', 5000);
	wait_for_nodes('/kill', '3/0', 'three are held, two by a service');
	wait_first('/kill', $v2, 4, 'the service waits');
	queue('/kill', $a);
	queue('/kill', $v3);
	queue('/kill', $b);
	$victim->kill9;
	have_it('the service is killed: its two are for zklock', $a);
	is(scalar(grep { $zk->has_session($_) } @sessions[ 0, 1 ]), 0, 'the service is killed: when its sessions had expired');
	wait_for_nodes('/kill', '4/1', 'the other server waits');
	wait_on('the other server waits', $b);
	$c->release('/kill');
	have_it('and has one then', $b);
	$_->release('/kill') foreach $a, $b;
	wait_for_nodes('/kill', '0/0', 'all are released');
}

# The session of a server expires, which has a lease and waits for another.
{
	my ($b, $b2, $c) = (zklock('b1', 2, 2), zklock('b2', 1), curator('c1', 2));
	$node{b}->set_session_timeout($zk, '8s');
	$b->acquire('/expire');
	wait_first('/expire', $c, 3, 'Curator waits');
	curator('c2', 1)->acquire('/expire_wait');
	wait_first('/expire_wait', $b2, 2, 'zklock waits');
	send_sleep('b1');
	$node{b}->expire_session($zk);
	have_it('the session expires: Curator has a lease', $c);
	is($backend{b1}->result->{errcode}, 'ZK001', 'the session expires: the statement is cancelled');
	is(is_held('b1', '/expire'), 'f', 'the session expires: zklock knows it');
	is($backend{b1}->errcode(q{SELECT zk_lock_token('/expire')}), 'ZK001', 'the session expires: an error');
	$b->release('/expire');
	wait_for_nodes('/expire', '1/0', 'a release of what was lost frees nothing');
	is($b->try('/expire'), 'f', 'there is one left');
	$c->release('/expire');
	is($b->acquire('/expire'), 't', 'zklock has two again');
	$b->release('/expire');
	wait_for_nodes('/expire', '0/0', 'all are released');

	wait_for_nodes('/expire_wait', '2/1', 'the waiter waits on, with new znodes');
	wait_on('the waiter waits on', $b2);
	curator('c2', 1)->release('/expire_wait');
	have_it('and has it', $b2);
	$b2->release('/expire_wait');
	wait_for_nodes('/expire_wait', '0/0', 'all are released');
}

# A server is killed.
{
	my ($b, $c) = (zklock('b1', 2), curator('c1', 2, 2));
	$b->acquire('/crash');
	zklock('b2', 1)->acquire('/crash_wait');
	$c->send_acquire('/crash');
	wait_for_nodes('/crash', '3/1', 'Curator waits for the second');
	my $session = $node{b}->status('session_id');
	$node{b}->kill9_all;
	have_it('the server is killed: Curator has it', $c);
	ok(!$zk->has_session($session), 'the server is killed: after its session had expired');
	wait_for_nodes('/crash_wait', '0/0', 'the server is killed: nothing is left');
	$node{b}->configure('zklock.session_timeout' => '30s');
	$node{b}->start;
	$node{b}->wait_until_connected;
	renew($_) foreach 'b1', 'b2';
	is(zklock('b1', 2)->try('/crash'), 'f', 'the server is back: Curator has both');
	wait_for_nodes('/crash', '2/0', 'the server is back');
	wait_first('/crash', zklock('b1', 2), 3, 'the server is back: it waits');
	$c->release('/crash');
	have_it('the server is back: and has one', zklock('b1', 2));
	zklock('b1', 2)->release('/crash');
	wait_for_nodes('/crash', '0/0', 'all are released');
}

# --- other clients delete znodes ---

# Another client deletes a lease that is held, while a client waits or not.
foreach my $is_awaited (0, 1)
{
	foreach my $quantity (1, 2)
	{
		my $what = "one of $quantity deleted" . ($is_awaited ? ', with Curator waiting' : '');
		my $path = "/delete$is_awaited$quantity";
		my ($a, $c) = (zklock('a1', $quantity, $quantity), curator('c1', $quantity));
		$a->acquire($path);
		wait_for_nodes($path, "$quantity/0", $what);
		my ($mine) = lease_nodes($path);
		wait_first($path, $c, $quantity + 1, "$what: before") if $is_awaited;
		send_sleep('a1');
		$zk->delete($mine);
		is($backend{a1}->result->{errcode}, 'ZK001', "$what: the statement is cancelled");
		is(is_held('a1', $path), 'f', "$what: the claim is lost");
		is($backend{a1}->errcode("SELECT zk_lock_token('$path')"), 'ZK001', "$what: an error");
		is($is_awaited ? $c->answer : $c->acquire($path, 5000), 't', "$what: Curator has it");
		is($a->release($path), 'f', "$what: a release says so");
		wait_for_nodes($path, '1/0', "$what: nothing else is left");
		$c->release($path);
		is($a->acquire($path), 't', "$what: zklock has it again");
		$a->release($path);
		wait_for_nodes($path, '0/0', "$what: all are released");
	}
}

# Another client deletes the znode with which zklock, or Curator, waits.  Curator would then queue
# anew behind the others.
foreach my $name ('a1', 'c2')
{
	my $what = $name eq 'a1' ? 'zklock' : 'Curator';
	my $path = "/delete_waiting_$name";
	my ($holder, $waiter) = map { who($_, 1) } $name eq 'a1' ? ('c1', 'a1') : ('a1', 'c2');
	my @behind = $name eq 'a1' ? curator('c3', 1) : ();

	$holder->acquire($path);
	wait_for_nodes($path, '1/0', "$what: one is held");
	my ($held) = lease_nodes($path);
	wait_first($path, $waiter, 2, "$what waits");
	queue($path, $_) foreach @behind;
	foreach (1 .. 3)
	{
		my ($waiting) = grep { $_ ne $held } lease_nodes($path);
		$zk->delete($waiting);
		$zk->wait_until(sub { my @now = lease_nodes($path); @now == 2 && !grep { $_ eq $waiting } @now }, "$what to have a new lease");
		wait_on("$what: its waiting lease was deleted", $waiter, @behind);
	}
	wait_for_nodes($path, '2/' . (1 + @behind), "$what waits on");
	$holder->release($path);
	have_it("$what has it", $waiter);
	if (@behind)
	{
		wait_for_nodes($path, '2/1', "$what has it, and the next waits");
		wait_on("$what has it", @behind);
	}
	$waiter->release($path);
	foreach (@behind)
	{
		have_it('then the next', $_);
		$_->release($path);
	}
	wait_for_nodes($path, '0/0', 'all are released');
}

# Another client deletes the znode with which zklock has the inner mutex.
{
	my ($a, $b, $c) = (zklock('a1', 1), zklock('b1', 1), curator('c1', 1));
	$c->acquire('/delete_inner');
	wait_for_nodes('/delete_inner', '1/0', 'held');
	wait_first('/delete_inner', $a, 2, 'zklock waits');
	my ($inner) = @{ $zk->children('/zklock/delete_inner/locks') };
	$zk->delete("/zklock/delete_inner/locks/$inner");
	$zk->wait_until(sub { my @now = @{ $zk->children('/zklock/delete_inner/locks') }; @now == 1 && $now[0] ne $inner }, 'a new znode for the inner mutex');
	wait_for_nodes('/delete_inner', '2/1', 'zklock waits on');
	wait_on('zklock waits on', $a);
	queue('/delete_inner', $b);
	$c->release('/delete_inner');
	have_it('zklock has it', $a);
	wait_on('the other server waits', $b);
	$a->release('/delete_inner');
	have_it('then the other server', $b);
	$b->release('/delete_inner');
	wait_for_nodes('/delete_inner', '0/0', 'all are released');
}

# Any child of "leases" counts as one lease.
foreach my $child ('junk', '0', '_c_1b4e28ba-2fa1-41d2-883f-0016d3cca427-lease-0000000007', 'x-lock-0000000000')
{
	my $path = '/junk_' . $child =~ s/\W+/_/gr;
	my ($a, $c) = (zklock('a1', 2), curator('c1', 2));
	my ($a_two, $c_two) = (zklock('a1', 2, 2), curator('c1', 2, 2));
	$zk->create("/zklock$path/leases/$child");
	is($a_two->try($path), 'f', "$child: zklock tries two of two");
	is($a_two->acquire($path, 100), 'f', "$child: zklock wants two of two");
	is($c_two->acquire($path, 100), 'f', "$child: Curator wants two of two");
	wait_for_nodes($path, '1/0', $child);
	is($a->try($path), 't', "$child: zklock has one");
	is($c->acquire($path, 100), 'f', "$child: then Curator has none");
	wait_for_nodes($path, '2/0', "$child: zklock has one");
	$a->release($path);
	wait_for_nodes($path, '1/0', $child);
	is($c->acquire($path, 5000), 't', "$child: Curator has one");
	is($a->try($path), 'f', "$child: then zklock has none");
	wait_for_nodes($path, '2/0', "$child: Curator has one");
	wait_first($path, $a, 3, "$child: zklock waits");
	$zk->delete("/zklock$path/leases/$child");
	have_it("$child is deleted: zklock has one", $a);
	$_->release($path) foreach $a, $c;
	wait_for_nodes($path, '0/0', "$child: all are released");
}

# Other clients have leases of the path: it is no lock of another kind.
{
	my $c = curator('c1', 2);
	$c->acquire('/kind');
	foreach my $function ('lock', 'read_lock', 'write_lock')
	{
		foreach my $arguments (q{'/kind'}, q{'/kind', '0'}, q{'/kind', '1min'})
		{
			is($backend{a1}->errcode("SELECT zk_${function}_acquire($arguments)"), 'ZK003', "Curator has a lease: no zk_${function}_acquire($arguments)");
		}
	}
	$c->release('/kind');
	zklock('b1', 2)->acquire('/kind');
	is($backend{a1}->errcode(q{SELECT zk_lock_acquire('/kind')}), 'ZK003', 'another server has a lease: no mutex');
	zklock('b1', 2)->release('/kind');
	wait_for_nodes('/kind', '0/0', 'no client has a lease');
	is($backend{a1}->query(q{SELECT zk_lock_acquire('/kind')}), 't', 'no client has a lease: a mutex');
	is($backend{a1}->query(q{SELECT zk_lock_release('/kind')}), 't', 'and no more');
}

# --- leases that linger ---

# A server that keeps an idle lease gives it up as soon as Curator waits, and so does the server
# with the inner mutex.
$_->set('zklock.linger', '1h') foreach values %node;
{
	my ($a, $c) = (zklock('a1', 2, 2), curator('c1', 2, 2));
	foreach my $round (1 .. 3)
	{
		foreach (1 .. 2)
		{
			is($a->acquire('/linger'), 't', 'zklock has two');
			is($a->release('/linger'), 't', 'and gives them back');
		}
		is((split m{/}, nodes('/linger'))[0], 2, 'but its server keeps them');
		is($c->acquire('/linger', 30_000), 't', 'Curator gets two of two');
		wait_for_nodes('/linger', '2/0', 'Curator has two');
		is($a->try('/linger'), 'f', 'and so zklock does not');
		$c->release('/linger');
	}
	is($a->acquire('/linger'), 't', 'zklock has two');
	is($a->acquire('/linger', 100), 'f', 'there are not two more');
	is($backend{a1}->query(q{SELECT zk_semaphore_release('/linger')}), 't', 'zklock keeps one');
	is(curator('c1', 2)->acquire('/linger', 30_000), 't', 'Curator gets one of two');
	is(is_held('a1', '/linger'), 't', 'zklock has the other');
	is($backend{a1}->query(q{SELECT zk_semaphore_release('/linger')}), 't', 'and gives it back');
	curator('c1', 2)->release('/linger');
	is($c->acquire('/linger', 30_000), 't', 'Curator gets two of two');
	$c->release('/linger');
	wait_for_nodes('/linger', '0/0', 'all are released');
}
$_->set('zklock.linger', '0') foreach values %node;

# --- the end ---

foreach my $node (values %node)
{
	$node->wait_until('SELECT count(*) = 0 FROM zk_locks');
	pass($node->name . ': no entry is left');
}
$_->quit foreach values %backend;
foreach my $node (values %node)
{
	$node->stop;
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, $node->name . ': a quiet log');
}
is_deeply([ grep { m{-lease-|-lock-} } @{ $zk->tree('/zklock') } ], [], 'nothing is left in the end');

done_testing();
