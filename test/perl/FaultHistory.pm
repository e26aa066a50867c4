
=head1 NAME

FaultHistory - what many clients saw of their locks under faults, and whether that can be

=head1 SYNOPSIS

	my $history = FaultHistory->new(map { FaultHistory::parse($_) } @lines);
	my @problems = $history->problems;

A history is a list of records, in any order.  A record is a line of C<name=value>; all
have C<op>, and C<t> and C<end>, when it began and when its end was known: microseconds of
one clock.  C<result> is C<ok>, C<no> (the answer was false), C<fail>, or C<info>, when it
is not known if it was done.

	op=config tenure= margin= timeout=			in ms
	op=acquire claim= who= node= path= kind=mutex|read|write|semaphore result= scope=
		n= quantity= leases of how many; deadline= from t on; lease= lease time, in us;
		must=1: it has to succeed
	op=held claim= result=						was it said to be held, and certainly valid?
	op=token claim= token= result= same=		the token of a claim, which has to be C<same>
	op=over claim=								it was released, or asked to be
	op=commit claims=1,2 result=				of a transaction that these claims guard
	op=write store=fence|guard node= path= value= token= claim= wid= result=
		read the number C<value>, and has written the one after it; the commit is from t to end
	op=audit store= node= path= value= token= wid=		what is in the store at the end, in
												order of its writing
	op=counter store= node= path= value=			the number that is there at the end
	op=stop node= pid=							processes stood still (without pid: all of the node)
	op=fault what=								anything that disturbs
	op=foul node= ended= | path=				a user ended the node's session, or tried to; or took the lock
	op=left what= , op=crash what= , op=hang what=		should not be
	op=void what=								ZooKeeper lost something; not judged here

L<JobHistory> has the records about jobs and leaderships.

=head1 WHAT IS A HOLDER

No client can know when exactly it lost a lock.  But some answers prove that the claim was valid
at some moment between question and answer: the grant, C<zk_lock_is_held> being true,
C<zk_lock_token> not failing, the commit of a transaction that the claim guards.  A lost claim
never comes back, so it was valid from the first of these moments to the last.  Two claims that
exclude each other are right if these moments I<can> have been such that the one was over before
the other began.

No server can foresee what a user does by hand: until the server knows, it takes lost claims for
held.  The evidence of this time does not count, for these locks.  The content of a store has to
be right nevertheless.

=cut

package FaultHistory;

use strict;
use warnings;

use JobHistory;

=head1 METHODS

=over

=item FaultHistory::parse($line), FaultHistory::line(%record)

=item FaultHistory->new(@records)

=item $history->problems

What is wrong, as a list of messages, each beginning with the name of its rule.

=item $history->excerpt(@problems)

What the clients did with the claims that these messages name, and the faults meanwhile: lines, each beginning with
the seconds since the start.

=item $history->figures

The counts, as a hash.

=back

=cut

# How late the end of a wait may be seen, and by when a server knows of a user's intervention.
our $margin = 1_000_000;

# Effects that a fault may have left behind.
my $aftermath = 2_000_000;

sub parse { my ($line) = @_; chomp $line; return { map { split /=/, $_, 2 } split / /, $line }; }

sub line
{
	my ($record) = @_;
	return join ' ', map { (my $v = $record->{$_} // '') =~ s/\s+/_/g; "$_=$v" }
	  grep { defined $record->{$_} } 'op', 't', 'end', sort grep { !/^(op|t|end)$/ } keys %$record;
}

sub new
{
	my ($class, @records) = @_;
	my $self = bless { of => {}, claims => {}, figures => {} }, $class;
	push @{ $self->{of}{ $_->{op} } }, $_ foreach sort { $a->{t} <=> $b->{t} } @records;
	($self->{config}) = $self->_of('config');
	$self->_gather;
	return $self;
}

sub _of { my ($self, $op) = @_; return @{ $self->{of}{$op} // [] }; }
sub figures { my ($self) = @_; return %{ $self->{figures} }; }

# Claims that were granted, each with its evidence: "since" is the time by which it was granted, and
# "until" is the time of the last question whose answer proved that it was valid.
sub _gather
{
	my ($self) = @_;
	my $claims = $self->{claims};
	my $figures = $self->{figures};
	foreach my $acquire ($self->_of('acquire'))
	{
		$figures->{"acquire_$acquire->{result}"}++;
		next unless $acquire->{result} eq 'ok';
		my $claim = { %$acquire, id => $acquire->{claim}, evidence => [] };
		$claims->{ $acquire->{claim} } = $claim;
		$self->_witness($claim, $acquire);
	}
	foreach my $term (JobHistory::terms($self->_of('led')))
	{
		my @evidence = @{ $term->{evidence} };
		$term->{evidence} = [];
		$claims->{ $term->{id} } = $term;
		$self->_witness($term, $_) foreach @evidence;
	}
	foreach my $record ($self->_of('held'), $self->_of('token'), $self->_of('commit'))
	{
		next unless $record->{result} eq 'ok';
		foreach my $id (split /,/, $record->{claims} // $record->{claim})
		{
			$self->_witness($claims->{$id}, $record) if $claims->{$id};
		}
	}
	foreach my $record (grep { $_->{result} eq 'ok' && !$_->{same} } $self->_of('token'))
	{
		my $claim = $claims->{ $record->{claim} } or next;
		$claim->{token} //= $record->{token} unless $self->_is_foul($claim, $record);
	}
	foreach ($self->_of('over')) { $claims->{ $_->{claim} }{over} = $_->{end} if $claims->{ $_->{claim} }; }
	foreach my $claim (values %$claims)
	{
		my @evidence = @{ $claim->{evidence} } or next;
		foreach (@evidence)
		{
			$claim->{since} = $_->{end} if !defined $claim->{since} || $_->{end} < $claim->{since};
			$claim->{until} = $_->{t} if !defined $claim->{until} || $_->{t} > $claim->{until};
		}
	}
	$figures->{evidence} += @{ $_->{evidence} } foreach values %$claims;
	return;
}

sub _witness
{
	my ($self, $claim, $record) = @_;
	if ($self->_is_foul($claim, $record)) { $self->{figures}{foul}++; }
	else { push @{ $claim->{evidence} }, $record; }
	return;
}

sub _is_foul
{
	my ($self, $claim, $record) = @_;
	my $grace = ($self->{config}{timeout} // 0) * 1000 + $margin;
	return grep {
		(defined $_->{node} ? $_->{node} eq $claim->{node} : $_->{path} eq $claim->{path})
		  && $record->{end} >= $_->{t} && $record->{t} <= $_->{end} + $grace
	} $self->_of('foul');
}

sub problems
{
	my ($self) = @_;
	my %by_path;
	push @{ $by_path{ $_->{path} } }, $_
	  foreach sort { $a->{since} <=> $b->{since} } grep { defined $_->{since} } values %{ $self->{claims} };

	my @problems;
	push @problems, 'empty: no lock was granted' unless %by_path;
	foreach my $path (sort keys %by_path)
	{
		my @claims = @{ $by_path{$path} };
		push @problems, _exclusion(@claims), _leases(@claims), _token_order(@claims);
	}
	push @problems, $self->_tokens, $self->_lease_times, $self->_deadlines, $self->_fifo, $self->_ends,
	  $self->_survivors;
	push @problems, $self->_store('fence'), $self->_store('guard');
	push @problems, JobHistory::problems($self);
	return @problems;
}

sub excerpt
{
	my ($self, @problems) = @_;
	my %named = map { $_ => 1 } map { split /[^\w.:-]+/ } @problems;
	my @records = grep { $_->{op} ne 'audit' } map { @$_ } values %{ $self->{of} };
	my @about = grep { grep { $named{$_} } split /,/, $_->{claims} // $_->{claim} // '' } @records;
	return unless @about;
	my ($from) = sort { $a <=> $b } map { $_->{t} } @about;
	my ($to) = sort { $b <=> $a } map { $_->{end} } @about;
	push @about, grep { $_->{op} =~ /^(fault|stop|foul)$/ && $_->{t} <= $to && $_->{end} >= $from } @records;
	my $start = $self->{config}{t} // 0;
	return map {
		my $record = $_;
		my %rest = map { $_ => $record->{$_} } grep { !/^(t|end)$/ && !ref $record->{$_} } keys %$record;
		sprintf '%8.3f - %8.3f  %s', ($record->{t} - $start) / 1e6, ($record->{end} - $start) / 1e6, line(\%rest);
	} sort { $a->{t} <=> $b->{t} } @about;
}

# --- exclusion ---

sub _excludes
{
	my ($one, $other) = @_;
	return 0 if $one->{who} eq $other->{who};
	return 0 if $one->{kind} eq 'semaphore';		# these are counted
	return !($one->{kind} eq 'read' && $other->{kind} eq 'read');
}

# In order of "since".  If the last proof of each claim was requested after the grant of the other
# was known, then neither can have been over before the other.
sub _exclusion
{
	my (@problems, @open);
	foreach my $claim (@_)
	{
		@open = grep { $_->{until} >= $claim->{since} } @open;
		foreach my $other (@open)
		{
			push @problems, 'exclusion: ' . _show($other, $claim)
			  if $claim->{until} >= $other->{since} && _excludes($claim, $other);
		}
		push @open, $claim;
	}
	return @problems;
}

sub _leases
{
	my (@problems, @open);
	foreach my $claim (grep { $_->{kind} eq 'semaphore' && $_->{until} >= $_->{since} } @_)
	{
		@open = grep { $_->{until} >= $claim->{since} } @open;
		push @open, $claim;
		my $sum = 0;
		$sum += $_->{quantity} foreach @open;
		push @problems, "leases: $sum of $claim->{n}: " . _show(@open) if $sum > $claim->{n};
	}
	return @problems;
}

# --- tokens ---

sub _is_exclusive { my ($c) = @_; return $c->{kind} =~ /^(mutex|write)$/ || ($c->{n} // 0) == 1; }

sub _token_order
{
	my (@problems, %seen);
	my @claims = grep { defined $_->{token} } @_;
	my @by_asking = sort { $a->{t} <=> $b->{t} } grep { _is_exclusive($_) } @claims;
	my $greatest;

	# Both are in order of time: the claims that were granted before this one was requested.
	foreach my $claim (@by_asking)
	{
		while (@claims && $claims[0]{since} < $claim->{t})
		{
			my $earlier = shift @claims;
			$greatest = $earlier if !$greatest || $earlier->{token} > $greatest->{token};
		}
		push @problems, 'token: does not grow: ' . _show($greatest, $claim)
		  if $greatest && $greatest->{id} ne $claim->{id} && $claim->{token} <= $greatest->{token};
		my $twin = $seen{ $claim->{token} };
		push @problems, 'token: the same: ' . _show($twin, $claim) if $twin;
		$seen{ $claim->{token} } = $claim;
	}
	return @problems;
}

# A claim has one token for all of its life.
sub _tokens
{
	my ($self) = @_;
	my @problems;
	foreach my $record (grep { $_->{result} eq 'ok' } $self->_of('token'))
	{
		my $claim = $self->{claims}{ $record->{claim} } or next;
		my $wanted = $record->{same} || $claim->{token};
		push @problems, "token: changed from $wanted to $record->{token}: " . _show($claim)
		  if $wanted && $wanted != $record->{token};
	}
	return @problems;
}

# --- time ---

sub _lease_times
{
	my ($self) = @_;
	my @problems;
	foreach my $claim (grep { $_->{lease} } values %{ $self->{claims} })
	{
		push @problems, map { 'lease time: is over, and it is held: ' . _show($claim) . " at $_->{t}" }
		  grep { $_->{t} > $claim->{end} + $claim->{lease} } @{ $claim->{evidence} };
	}
	return @problems;
}

# A process that stood still could not see that the timeout had passed.
sub _deadlines
{
	my ($self) = @_;
	my @problems;
	my $latest = 0;
	foreach my $acquire (grep { defined $_->{deadline} } $self->_of('acquire'))
	{
		my $late = $acquire->{end} - $acquire->{t} - $acquire->{deadline};
		next if $late <= 0;
		foreach my $stop ($self->_of('stop'))
		{
			next if $stop->{node} ne $acquire->{node};
			next if defined $stop->{pid} && $stop->{pid} ne $acquire->{pid};
			my $from = $stop->{t} > $acquire->{t} ? $stop->{t} : $acquire->{t};
			my $to = $stop->{end} < $acquire->{end} ? $stop->{end} : $acquire->{end};
			$late -= $to - $from if $to > $from;
		}
		$latest = $late if $late > $latest;
		push @problems, sprintf('deadline: %d ms late: ', $late / 1000) . line($acquire) if $late > $margin;
	}
	$self->{figures}{latest_ms} = int($latest / 1000);
	return @problems;
}

sub _ends
{
	my ($self) = @_;
	my @problems = map { "$_->{op}: " . line($_) } map { $self->_of($_) } qw(left crash hang);
	push @problems, map { 'stuck: ' . line($_) }
	  grep { $_->{must} && $_->{result} ne 'ok' && !$self->_is_cut_short($_) } $self->_of('acquire');
	return @problems;
}

# The stops of all processes of a server.
sub _standstills { my ($self) = @_; return grep { !defined $_->{pid} } $self->_of('stop'); }

# When the whole server stood still, it may be right that nothing is known of ZooKeeper.
sub _is_cut_short
{
	my ($self, $acquire) = @_;
	return ($acquire->{code} // '') =~ /^(?:08006|ZK001)$/
	  && grep { $_->{node} eq $acquire->{node} && $_->{t} <= $acquire->{end} && $_->{end} >= $acquire->{t} } $self->_standstills;
}

# A session that is gone cannot prove that it lives.
sub _survivors
{
	my ($self) = @_;
	my @problems;
	my $timeout = ($self->{config}{timeout} // 0) * 1000;
	foreach my $foul (grep { $_->{ended} } $self->_of('foul'))
	{
		foreach my $claim (grep { $_->{node} eq $foul->{node} && $_->{end} < $foul->{t} } values %{ $self->{claims} })
		{
			push @problems, 'survivor: session ended from ' . "$foul->{t} to $foul->{end}: " . _show($claim)
			  if defined $claim->{until} && $claim->{until} > $foul->{end} + $timeout;
		}
	}
	return @problems;
}

# --- order among servers ---

# Only where nothing disturbs, and where neither the overtaken server nor the overtaking one has
# another client in the queue in whose turn it might have been.
sub _fifo
{
	my ($self) = @_;
	return () if $self->{config}{tenure} // 1;
	my $slack = 300_000;
	my %asked;
	foreach my $acquire (grep { $_->{kind} eq 'mutex' } $self->_of('acquire'))
	{
		push @{ $asked{ $acquire->{path} } }, $self->{claims}{ $acquire->{claim} } // $acquire;
	}

	my @problems;
	foreach my $asked (values %asked)
	{
		my @granted = grep { $_->{result} eq 'ok' && $_->{end} - $_->{t} > $slack } @$asked;
		foreach my $slow (@granted)
		{
			next if $self->_is_disturbed($slow->{t}, $slow->{end}) || _has_company($asked, $slow, $slow);
			$self->{figures}{fifo_judged}++;
			push @problems, map { 'fifo: ' . _show($_) . ' overtook ' . _show($slow) }
			  grep { !_has_company($asked, $_, $slow) }
			  grep { $_->{result} eq 'ok' && $_->{node} ne $slow->{node} && $_->{t} > $slow->{t} + $slack
				  && $_->{end} < $slow->{end} } @$asked;
		}
	}
	return @problems;
}

sub _is_disturbed
{
	my ($self, $from, $to) = @_;
	my $after = $aftermath + ($self->{config}{timeout} // 0) * 1000;
	return grep { $_->{t} <= $to && $_->{end} + $after >= $from } $self->_of('fault'), $self->_of('foul'),
	  $self->_standstills;
}

# Other clients of the same server that may have been in the queue when this one came, or that came
# to it while the other waited.
sub _has_company
{
	my ($asked, $claim, $slow) = @_;
	my $from = $slow->{t} < $claim->{t} ? $slow->{t} : $claim->{t};
	return grep { $_->{node} eq $claim->{node} && $_->{claim} ne $claim->{claim}
		  && $_->{t} <= $claim->{end} && ($_->{over} // $_->{end}) + $margin >= $from } @$asked;
}

# --- stores ---

# The values that were read are 0, 1, 2, ...: no client has overwritten a value that it had not
# read.  Tokens do not shrink.  A confirmed write is there, a failed one is not.
sub _store
{
	my ($self, $store) = @_;
	my (%audit, %final, %is_there, @problems);
	push @{ $audit{"$_->{node} $_->{path}"} }, $_ foreach grep { $_->{store} eq $store } $self->_of('audit');
	$final{"$_->{node} $_->{path}"} = $_->{value} foreach grep { $_->{store} eq $store } $self->_of('counter');
	my %write = map { $_->{wid} => $_ } grep { $_->{store} eq $store } $self->_of('write');

	foreach my $where (sort keys %final)
	{
		my @rows = sort { $a->{value} <=> $b->{value} || $a->{token} <=> $b->{token} }
		  @{ $audit{$where} // [] };
		my ($wanted, $last) = (0, undef);
		foreach my $row (@rows)
		{
			$is_there{ $row->{wid} } = 1;
			my $write = $write{ $row->{wid} };
			if ($row->{value} != $wanted && !$self->_is_in_the_gap($write, $last && $write{ $last->{wid} }))
			{
				push @problems, "$store: lost update on $where: " . join ' and ',
				  map { line($_) } grep { $_ } $last, $row, $write;
			}
			push @problems, "$store: token shrinks on $where: " . line($last) . ' and ' . line($row)
			  if $last && $row->{token} < $last->{token};
			$wanted = $row->{value} + 1;
			$last = $row;
		}
		push @problems, "$store: $where is $final{$where}, but was written $wanted" if $final{$where} != $wanted;
	}
	foreach my $write (values %write)
	{
		$self->{figures}{"${store}_$write->{result}"}++;
		push @problems, "$store: is not there: " . line($write) if $write->{result} eq 'ok' && !$is_there{ $write->{wid} };
		push @problems, "$store: is there: " . line($write) if $write->{result} eq 'fail' && $is_there{ $write->{wid} };
	}
	return @problems;
}

# The commit guard looks some time ahead.  A commit that takes longer than that may be too late: the
# documentation says so, and that a fence helps.
sub _is_in_the_gap
{
	my ($self, @writes) = @_;
	my @slow = grep { $_ && $_->{store} eq 'guard'
		  && $_->{end} - $_->{t} >= ($self->{config}{margin} // 0) * 1000 } @writes;
	$self->{figures}{in_the_gap}++ if @slow;
	return scalar @slow;
}

sub _show
{
	return join ' and ', map {
		"$_->{claim} ($_->{kind} $_->{path} token " . ($_->{token} // '?') . " asked $_->{t} granted by $_->{end}"
		  . (defined $_->{until} ? " proved until $_->{until}" : '') . ')'
	} @_;
}

1;
