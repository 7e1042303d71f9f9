// RUN: tpusim opt -p 'sccp' %s | filecheck %s
//
// The branch is always taken to one side, so the argument of the last block is 12.

module attributes {module.state = "TOP_F32"} {
  func.func @main(%in: tensor<1x4xf32>) -> tensor<1x4xf32> {
    %x = "top.Input"(%in) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("x")
    %y = "top.Relu"(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("y")
    func.return %y : tensor<1x4xf32>
  }
  func.func private @rows(%n: i32) -> i32 {
    %true = arith.constant true
    %a = arith.constant 12 : i32
    cf.cond_br %true, ^end(%a : i32), ^other
  ^other:
    cf.br ^end(%n : i32)
  ^end(%r: i32):
    func.return %r : i32
  }
}

// CHECK:      func.func @main(
// CHECK-NEXT: %x = "top.Input"(%in) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("x")
// CHECK-NEXT: %y = "top.Relu"(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32> loc("y")
// CHECK-NEXT: func.return %y : tensor<1x4xf32>
// CHECK:      func.func private @rows(
// CHECK-NEXT: %true = arith.constant true
// CHECK-NEXT: %a = arith.constant 12 : i32
// CHECK-NEXT: cf.cond_br %true, ^end(%a : i32), ^other
// CHECK-NEXT: ^other:
// CHECK-NEXT: cf.br ^end(%n : i32)
// CHECK-NEXT: ^end
// CHECK-NEXT: func.return %a : i32
